//! URLs for people: in banners, messages and `/-/overview`. They show no credentials.

use url::{Position, Url};

/// In place of what is secret.
pub(crate) const HIDDEN: &str = "(hidden)";

/// Returns a setting without the user and the query of its URL, which may have credentials. A text that contains a user or a query,
/// and can't be parsed, is hidden: a password with `/`, `?` or `#` in it ends up in other parts of a URL.
pub fn without_secrets(text: &str) -> String {
    // A user, a query and a fragment begin with these, and a URL has a colon.
    if !text.contains(':') || !text.contains(['@', '?', '#']) {
        return text.to_owned();
    }
    let url = Url::parse(text)
        .ok()
        .filter(|url| !url.cannot_be_a_base() && !url[Position::BeforeHost..].contains('@'));
    let Some(url) = url else {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let is_scheme = scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        return if scheme.is_empty() || !is_scheme {
            HIDDEN.to_owned()
        } else {
            format!("{scheme}://{HIDDEN}")
        };
    };
    let has_user = !url.username().is_empty() || url.password().is_some();
    let user = if has_user {
        format!("{HIDDEN}@")
    } else {
        String::new()
    };
    let query = if url.query().is_some() {
        format!("?{HIDDEN}")
    } else {
        String::new()
    };
    let fragment = if url.fragment().is_some() {
        format!("#{HIDDEN}")
    } else {
        String::new()
    };
    let place = &url[Position::BeforeHost..Position::AfterPath];
    format!("{}://{user}{place}{query}{fragment}", url.scheme())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_user_and_query() {
        for (text, shown) in [
            // Nothing to hide.
            ("s3://bucket/prefix", "s3://bucket/prefix"),
            ("etcd://h1:2379,h2:2379", "etcd://h1:2379,h2:2379"),
            ("redb:///file", "redb:///file"),
            ("/folder/a@b", "/folder/a@b"),
            ("127.0.0.1:10000", "127.0.0.1:10000"),
            (
                "http://10.0.0.7:8080 weight=2",
                "http://10.0.0.7:8080 weight=2",
            ),
            // Users and queries.
            ("http://peer:9000/?key=secret", "http://peer:9000/?(hidden)"),
            ("http://peer:9000?secret", "http://peer:9000/?(hidden)"),
            ("http://me:secret@peer/", "http://(hidden)@peer/"),
            ("redis://:secret@host", "redis://(hidden)@host"),
            (
                "s3://AKIA:secret@bucket/prefix",
                "s3://(hidden)@bucket/prefix",
            ),
            (
                "postgres://user@host/d?password=secret#secret",
                "postgres://(hidden)@host/d?(hidden)#(hidden)",
            ),
            ("https:secret@host/x", "https://(hidden)@host/x"),
            ("http://user:se%40cret@host/a", "http://(hidden)@host/a"),
            ("http://us@er:secret@host/a", "http://(hidden)@host/a"),
            // Characters that end a user too early.
            ("s3://secret:12/secret@bucket/x", "s3://(hidden)"),
            ("redis://secret:12?secret@host", "redis://(hidden)"),
            ("redis://secret:12#secret@host", "redis://(hidden)"),
            ("http://secret:12\\secret@host/", "http://(hidden)"),
            ("s3://user:sec/ret@bucket/x", "s3://(hidden)"),
            ("postgres://user:secret@h1:1,h2:2/d", "postgres://(hidden)"),
            (
                "http://user:secret@one,http://user:secret@two",
                "http://(hidden)",
            ),
            ("host/path=http://user:secret@one", "(hidden)"),
            ("redis:user:secret@host", "(hidden)"),
            ("s3://user:secret@", "s3://(hidden)"),
            ("http://[secret@host", "http://(hidden)@host/"),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
            assert!(!without_secrets(text).contains("secret"), "{text}");
        }
    }
}
