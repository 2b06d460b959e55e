//! Other resources that a write has changed.

use http::header::{CONTENT_LOCATION, HOST, LOCATION};
use http::request::Parts;
use http::{HeaderValue, Response, Uri};
use ifmatch_register::Key;

use crate::key::KeyExtractor;
use crate::mount;

/// Response extension that names other resources that a write has changed.
///
/// The layer then treats their state as unknown. You needn't repeat `Location` and `Content-Location` on the same host.
///
/// ```
/// use http::{Response, Uri};
/// use ifmatch::Invalidates;
///
/// let mut response = Response::new(());
/// response.extensions_mut().insert(Invalidates(vec![Uri::from_static("/documents")]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invalidates(pub Vec<Uri>);

/// Returns the keys of the resources that a response names as changed, other than `target`.
pub(crate) fn keys<T>(
    extractor: &dyn KeyExtractor,
    target: &Key,
    request: &Parts,
    response: &Response<T>,
) -> Vec<Key> {
    let located = [LOCATION, CONTENT_LOCATION]
        .into_iter()
        .filter_map(|name| response.headers().get(name));
    let named = response
        .extensions()
        .get::<Invalidates>()
        .into_iter()
        .flat_map(|also| also.0.iter().cloned());
    let uris = located
        .filter_map(|value| resolve(value, request))
        .chain(named);
    let mut changed: Vec<Key> = uris
        .filter_map(|uri| key_of(extractor, request, uri))
        .collect();
    changed.retain(|key| key != target);
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// Returns `true` if a `Content-Location` names the target of the request.
pub(crate) fn is_target(location: &HeaderValue, request: &Parts) -> bool {
    let target = &request.uri;
    resolve(location, request)
        .is_some_and(|uri| uri.path() == target.path() && uri.query() == target.query())
}

fn key_of(extractor: &dyn KeyExtractor, request: &Parts, uri: Uri) -> Option<Key> {
    let mut head = request.clone();
    mount::replace(&mut head, uri);
    extractor.key(&head).ok()
}

/// Resolves a reference on the same host (RFC 3986 §5.2), without its fragment.
fn resolve(location: &HeaderValue, request: &Parts) -> Option<Uri> {
    let target = &request.uri;
    let text = std::str::from_utf8(location.as_bytes()).ok()?;
    let text = text.split('#').next()?;
    // A colon after the first slash or question mark belongs to the path or the query.
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => (Some(scheme), rest),
        _ => (None, text),
    };
    if let Some(rest) = rest.strip_prefix("//") {
        let (authority, _) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
        let absolute = || {
            format!("{}://{rest}", scheme.unwrap_or("http"))
                .parse()
                .ok()
        };
        return without_port(host(request)?)
            .eq_ignore_ascii_case(without_port(authority))
            .then(absolute)?;
    }
    if scheme.is_some() {
        return None;
    }
    let (path, query) = text
        .split_once('?')
        .map_or((text, None), |(path, query)| (path, Some(query)));
    let path = match path {
        "" if query.is_none() => return Some(target.clone()),
        "" => target.path().to_owned(),
        path if path.starts_with('/') => without_dots(path),
        path => {
            let base = target.path().rsplit_once('/').map_or("", |(base, _)| base);
            without_dots(&format!("{base}/{path}"))
        }
    };
    query
        .map_or(path.clone(), |query| format!("{path}?{query}"))
        .parse()
        .ok()
}

fn host(request: &Parts) -> Option<&str> {
    match request.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers.get(HOST)?.to_str().ok(),
    }
}

/// Removes a port that is usually omitted.
fn without_port(authority: &str) -> &str {
    [":80", ":443"]
        .iter()
        .find_map(|port| authority.strip_suffix(port))
        .unwrap_or(authority)
}

/// Removes dot segments (RFC 3986 §5.2.4) from a path that begins with a slash.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    if path.ends_with("/.") || path.ends_with("/..") {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::PathKey;

    fn request() -> Parts {
        Request::post("/docs/list?x=1")
            .header(HOST, "example.org")
            .body(())
            .unwrap()
            .into_parts()
            .0
    }

    #[test]
    fn references_on_the_same_host_are_resolved() {
        let cases = [
            ("/docs/7", Some("/docs/7")),
            ("7", Some("/docs/7")),
            ("./7#top", Some("/docs/7")),
            ("../other/./7?a=b", Some("/other/7")),
            ("http://EXAMPLE.org/docs/7", Some("/docs/7")),
            ("https://example.org", Some("/")),
            ("?y=2", None),
            ("http://example.com/docs/7", None),
            ("//example.com/docs/7", None),
            ("//Example.org/docs/7", Some("/docs/7")),
            ("https://example.org:443/docs/7", Some("/docs/7")),
            ("http://example.org:8080/docs/7", None),
            ("/docs/7?return=https://app.example/", Some("/docs/7")),
            ("7?at=12:30", Some("/docs/7")),
            ("mailto:a@b", None),
            ("http:/docs/7", None),
        ];
        let target = Key::new("/docs/list").unwrap();
        for (location, expected) in cases {
            let response = Response::builder()
                .header(LOCATION, location)
                .body(())
                .unwrap();
            let changed = keys(&PathKey::new(), &target, &request(), &response);
            let found: Vec<_> = changed.iter().map(Key::as_str).collect();
            assert_eq!(
                found,
                expected.into_iter().collect::<Vec<_>>(),
                "{location}"
            );
        }
    }

    #[test]
    fn the_target_is_recognized_with_its_query() {
        for (location, expected) in [
            ("list?x=1", true),
            ("/docs/list?x=1", true),
            ("/docs/list", false),
            ("list?x=2", false),
            ("", true),
        ] {
            assert_eq!(
                is_target(&HeaderValue::from_static(location), &request()),
                expected,
                "{location}"
            );
        }
    }
}
