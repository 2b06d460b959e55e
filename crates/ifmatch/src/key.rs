//! Keys: which resource a request addresses.

use std::fmt::Write as _;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use ifmatch_core::digest::ContentHash;
use ifmatch_register::{InvalidKey, Key};
use percent_encoding::percent_decode_str;

use crate::mount;

/// Identifies the resource that a request addresses, by a key.
///
/// Requests that change the same resource must have the same key, whatever their method, or two writers can both
/// succeed. Requests to different resources should have different keys, or they wait for each other needlessly.
///
/// Closures implement this trait. With the feature `axum`, `head.uri` is the URI that the client sent, even in a nested router.
///
/// ```
/// use http::request::Parts;
/// use ifmatch::ConditionalLayer;
/// use ifmatch::Key;
///
/// // All of a user's settings are one document.
/// let layer = ConditionalLayer::builder()
///     .key(|head: &Parts| Key::new(head.uri.path().split('/').take(3).collect::<Vec<_>>().join("/")))
///     .build();
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the resource's key.
    ///
    /// ```
    /// use http::request::Parts;
    /// use ifmatch::key::{KeyExtractor, PathKey};
    /// use ifmatch::{InvalidKey, Key};
    ///
    /// /// Documents are found by their number, under several paths.
    /// struct Number;
    ///
    /// impl KeyExtractor for Number {
    ///     fn key(&self, head: &Parts) -> Result<Key, InvalidKey> {
    ///         match head.uri.path().rsplit('/').next() {
    ///             Some(number) if number.parse::<u64>().is_ok() => Key::new(number),
    ///             _ => PathKey::new().key(head),
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the request doesn't name a valid resource. The client gets 400.
    fn key(&self, head: &Parts) -> Result<Key, InvalidKey>;
}

impl<F> KeyExtractor for F
where
    F: Fn(&Parts) -> Result<Key, InvalidKey> + Send + Sync + 'static,
{
    fn key(&self, head: &Parts) -> Result<Key, InvalidKey> {
        self(head)
    }
}

/// Uses the path as the key. This is the default extractor.
///
/// Spellings of a path that most services treat as the same have one key. Percent-encoded characters, including
/// slashes, are decoded, except for percent signs, `?`, `#`, control characters and non-ASCII bytes. Case, a trailing
/// slash, empty segments and dot segments make a difference: see [`ignoring_case`](Self::ignoring_case) and
/// [`ignoring_trailing_slash`](Self::ignoring_trailing_slash). The query isn't part of the key, unless you add it with
/// [`with_query`](Self::with_query) or [`with_parameters`](Self::with_parameters). A path that's too long for a key is
/// replaced by its hash. With the feature `axum`, the path is the one that the client sent, even in a nested router.
///
/// ```
/// use http::Request;
/// use ifmatch::key::{KeyExtractor, PathKey};
///
/// let key = |uri| PathKey::new().key(&Request::get(uri).body(()).unwrap().into_parts().0);
/// assert_eq!(key("/notes/%61?page=2")?.as_str(), "/notes/a");
/// assert_eq!(key("/notes/a%2fb")?, key("/notes/a/b")?);
/// assert_ne!(key("/notes/A")?, key("/notes/a")?);
/// # Ok::<(), ifmatch::InvalidKey>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PathKey {
    query: QueryInKey,
    tenant: Option<HeaderName>,
    ignores_case: bool,
    ignores_trailing_slash: bool,
}

/// The part of the query that belongs to the key.
#[derive(Clone, Debug, Default)]
enum QueryInKey {
    #[default]
    None,
    All,
    Named(Vec<String>),
}

impl PathKey {
    /// Creates an extractor that uses the path alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// Treats paths that differ only in case as the same. Use this if the service does, for example on a file system
    /// that ignores case; otherwise, two writers of one resource can both succeed.
    ///
    /// ```
    /// # use ifmatch::key::PathKey;
    /// assert_eq!(PathKey::new().ignoring_case().normal_path("/Notes/%C3%89t%C3%A9"), "/notes/%C3%A9t%C3%A9");
    /// ```
    #[must_use]
    pub fn ignoring_case(mut self) -> Self {
        self.ignores_case = true;
        self
    }

    /// Treats a path with a trailing slash and the same path without it as one. Use this if the service does.
    ///
    /// ```
    /// # use ifmatch::key::PathKey;
    /// let key = PathKey::new().ignoring_trailing_slash();
    /// assert_eq!((key.normal_path("/notes/7/"), key.normal_path("/")), ("/notes/7".to_owned(), "/".to_owned()));
    /// ```
    #[must_use]
    pub fn ignoring_trailing_slash(mut self) -> Self {
        self.ignores_trailing_slash = true;
        self
    }

    /// Returns the normal form of a path: the same text for all spellings that have one key.
    pub fn normal_path(&self, path: &str) -> String {
        let mut normal = self.normal_spelling(path);
        if self.ignores_trailing_slash && normal.len() > 1 && normal.ends_with('/') {
            normal.pop();
        }
        normal
    }

    /// Returns `true` if the normal form of a path begins with the normal form of a prefix. With
    /// [`ignoring_trailing_slash`](Self::ignoring_trailing_slash), `/notes` is below `/notes/`.
    ///
    /// ```
    /// # use ifmatch::key::PathKey;
    /// assert!(PathKey::new().is_below("/n%6Ftes%2F7", "/notes/") && !PathKey::new().is_below("/notes", "/notes/"));
    /// ```
    pub fn is_below(&self, path: &str, prefix: &str) -> bool {
        let mut path = self.normal_spelling(path);
        if self.ignores_trailing_slash && !path.ends_with('/') {
            path.push('/');
        }
        path.starts_with(&self.normal_spelling(prefix))
    }

    /// Returns the normal form of a path, except that a trailing slash stays.
    fn normal_spelling(&self, path: &str) -> String {
        if !self.ignores_case && is_canonical(path) {
            return path.to_owned();
        }
        let mut bytes = percent_decode_str(path).collect::<Vec<_>>();
        if self.ignores_case {
            bytes = match String::from_utf8(bytes) {
                Ok(text) => text.to_lowercase().into_bytes(),
                Err(error) => error.into_bytes().to_ascii_lowercase(),
            };
        }
        let mut normal = String::with_capacity(path.len());
        encode(&mut normal, &bytes, b"?#");
        normal
    }

    /// Adds the whole query to the key, for services where each query is a separate resource.
    ///
    /// ```
    /// # use http::Request;
    /// # use ifmatch::key::{KeyExtractor, PathKey};
    /// let (head, ()) = Request::get("/notes?id=7").body(()).unwrap().into_parts();
    /// assert_eq!(PathKey::new().with_query().key(&head).unwrap().as_str(), "/notes?id=7");
    /// ```
    #[must_use]
    pub fn with_query(mut self) -> Self {
        self.query = QueryInKey::All;
        self
    }

    /// Adds these query parameters to the key in the given order, whatever their order in the request.
    ///
    /// ```
    /// # use http::Request;
    /// # use ifmatch::key::{KeyExtractor, PathKey};
    /// let (head, ()) = Request::get("/notes?utm=x&id=7").body(()).unwrap().into_parts();
    /// assert_eq!(PathKey::new().with_parameters(["id"]).key(&head).unwrap().as_str(), "/notes?id=7");
    /// ```
    #[must_use]
    pub fn with_parameters<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.query = QueryInKey::Named(names.into_iter().map(Into::into).collect());
        self
    }

    /// Prefixes the path with the value of a header field, so each tenant has its own resources. Clients must not be
    /// able to set this field themselves.
    ///
    /// ```
    /// # use http::{HeaderName, Request};
    /// # use ifmatch::key::{KeyExtractor, PathKey};
    /// let key = PathKey::new().with_tenant(HeaderName::from_static("x-tenant"));
    /// let request = Request::get("/notes").header("x-tenant", "acme");
    /// let (head, ()) = request.body(()).unwrap().into_parts();
    /// assert_eq!(key.key(&head).unwrap().as_str(), "acme/notes");
    /// ```
    #[must_use]
    pub fn with_tenant(mut self, header: HeaderName) -> Self {
        self.tenant = Some(header);
        self
    }
}

impl KeyExtractor for PathKey {
    fn key(&self, head: &Parts) -> Result<Key, InvalidKey> {
        let uri = mount::uri(head);
        let path = uri.path();
        let is_plain = self.tenant.is_none() && matches!(self.query, QueryInKey::None);
        if is_plain && !self.ignores_case && !self.ignores_trailing_slash && is_canonical(path) {
            return shorten(path);
        }
        let mut text = String::with_capacity(path.len() + 16);
        let tenants = self
            .tenant
            .iter()
            .flat_map(|name| head.headers.get_all(name));
        for (index, value) in tenants.enumerate() {
            if index > 0 {
                text.push(',');
            }
            encode(&mut text, value.as_bytes(), b"/,");
        }
        text.push_str(&self.normal_path(path));
        let query = uri.query().unwrap_or_default();
        match &self.query {
            QueryInKey::None => {}
            QueryInKey::All if query.is_empty() => {}
            QueryInKey::All => {
                text.push('?');
                text.push_str(query);
            }
            QueryInKey::Named(names) => append_named(&mut text, query, names),
        }
        shorten(&text)
    }
}

fn append_named(text: &mut String, query: &str, names: &[String]) {
    let mut separator = '?';
    for name in names {
        let pairs = query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        for (_, value) in pairs.filter(|(given, _)| decode_form(given) == name.as_bytes()) {
            text.push(separator);
            encode(text, name.as_bytes(), b"=&");
            text.push('=');
            encode(text, &decode_form(value), b"=&");
            separator = '&';
        }
    }
}

/// Decodes a name or a value of a query, in which `+` is a space (application/x-www-form-urlencoded).
fn decode_form(text: &str) -> Vec<u8> {
    percent_decode_str(&text.replace('+', "%20")).collect()
}

/// Returns the text as a key, or its hash if it's too long for a key.
///
/// ```
/// use ifmatch::key::shorten;
/// assert_eq!(shorten("/notes/7")?.as_str(), "/notes/7");
/// assert!(shorten(&"long".repeat(1_000))?.as_str().starts_with("sha-256:"));
/// # Ok::<(), ifmatch::InvalidKey>(())
/// ```
///
/// # Errors
/// Returns an error if the text is empty or contains NUL.
pub fn shorten(text: &str) -> Result<Key, InvalidKey> {
    if text.len() > Key::MAX_LEN {
        return Key::new(format!(
            "sha-256:{}",
            ContentHash::of(text.as_bytes()).hex()
        ));
    }
    Key::new(Arc::<str>::from(text))
}

/// Returns `true` if there is nothing to decode or to encode.
fn is_canonical(path: &str) -> bool {
    path.bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'%')
}

/// Appends bytes, and percent-encodes those that are reserved, invisible or not ASCII.
fn encode(text: &mut String, bytes: &[u8], reserved: &[u8]) {
    for byte in bytes {
        if byte.is_ascii_graphic() && *byte != b'%' && !reserved.contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a string can't fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn tenants_with_the_same_joined_values_do_not_share_a_key() {
        let header = HeaderName::from_static("x-tenant");
        let key = |tenants: &[&str]| {
            let mut request = Request::get("/notes");
            for tenant in tenants {
                request = request.header(&header, *tenant);
            }
            let (head, ()) = request.body(()).unwrap().into_parts();
            let keys = PathKey::new().with_tenant(header.clone());
            keys.key(&head).unwrap().as_str().to_owned()
        };
        assert_eq!(key(&["a", "b"]), "a,b/notes");
        assert_eq!(
            (key(&["ab"]), key(&["a,b"])),
            ("ab/notes".into(), "a%2Cb/notes".into())
        );
    }

    #[test]
    fn spellings_of_a_query_share_a_key_and_other_queries_do_not() {
        let keys = PathKey::new().with_parameters(["first name", "id"]);
        let key = |query: &str| {
            let request = Request::get(format!("/notes?{query}"));
            let (head, ()) = request.body(()).unwrap().into_parts();
            keys.key(&head).unwrap().as_str().to_owned()
        };
        for spelling in [
            "first+name=a+b&id=1",
            "first%20name=a%20b&id=1",
            "id=1&%66irst+name=a%20b&page=2",
        ] {
            assert_eq!(key(spelling), "/notes?first%20name=a%20b&id=1");
        }
        for other in [
            "id=1",
            "first+name=a%2Bb&id=1",
            "first+name=a&first+name=b&id=1",
        ] {
            assert_ne!(key(other), key("first+name=a+b&id=1"), "{other}");
        }
        assert_ne!(key("id=1&id=2"), key("id=2&id=1"));
    }
}
