//! The representation that a request selects, by its query and the header fields that `Vary` names.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, VARY,
};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_core::record::Variant;

use crate::mount;

/// Maximum size of a recorded variant in bytes.
const MAX_LEN: usize = 1_024;
/// Maximum number of header fields in `Vary`.
const MAX_FIELDS: usize = 8;

/// The header fields that select a representation, in alphabetical order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VaryFields(Box<[HeaderName]>);

impl VaryFields {
    /// Parses `Vary`. Returns `None` if no field distinguishes the representations (`*`), or only credentials, which must not
    /// be stored.
    pub(crate) fn of(response: &HeaderMap) -> Option<Self> {
        if !response.contains_key(VARY) {
            return Some(Self::default());
        }
        let mut names = Vec::new();
        for line in response.get_all(VARY) {
            for name in line
                .as_bytes()
                .split(|byte| *byte == b',')
                .map(<[u8]>::trim_ascii)
            {
                if !name.is_empty() {
                    names.push(HeaderName::from_bytes(name).ok()?);
                }
            }
        }
        names.sort_unstable_by(|left, right| left.as_str().cmp(right.as_str()));
        names.dedup();
        let is_usable = names.len() <= MAX_FIELDS && !names.iter().any(is_unusable);
        is_usable.then(|| Self(names.into()))
    }

    /// Returns the variant that a request with this query and these header fields selects, or `None` if the fields are
    /// too long or not text.
    pub(crate) fn select(&self, query: Option<&str>, headers: &HeaderMap) -> Option<Variant> {
        if self.0.is_empty() && query.is_none() {
            return Some(Variant::only());
        }
        let mut text = String::new();
        if let Some(query) = query {
            text.extend(["?", query, "\n"]);
        }
        for name in &self.0 {
            for (at, value) in headers.get_all(name).iter().enumerate() {
                let value = value.to_str().ok()?;
                text.extend(if at == 0 {
                    [name.as_str(), ": ", value.trim()]
                } else {
                    [", ", value.trim(), ""]
                });
            }
            if headers.contains_key(name) {
                text.push('\n');
            }
        }
        (text.len() <= MAX_LEN).then(|| Variant(text.into()))
    }
}

/// `*` parses as a header name.
fn is_unusable(name: &HeaderName) -> bool {
    [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name) || name.as_str() == "*"
}

/// Changes a request so that it selects this variant.
pub(crate) fn select_variant(variant: &Variant, request: &mut Parts) {
    for name in [ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE] {
        request.headers.remove(name);
    }
    let mut query = None;
    for line in variant.0.lines() {
        if let Some(text) = line.strip_prefix('?') {
            query = Some(text);
        } else if let Some((name, value)) = line.split_once(": ") {
            let header = (HeaderName::try_from(name), HeaderValue::try_from(value));
            if let (Ok(name), Ok(value)) = header {
                request.headers.insert(name, value);
            }
        }
    }
    // The URI stays where it has this query already.
    let _ = mount::map(request, |uri| with_query(uri, query));
}

fn with_query(uri: &Uri, query: Option<&str>) -> Option<Uri> {
    if uri.query() == query {
        return None;
    }
    let text = match query {
        Some(query) => format!("{}?{query}", uri.path()),
        None => uri.path().to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(text).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(uri: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::get(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn select(vary: &VaryFields, request: &Parts) -> Option<Variant> {
        vary.select(request.uri.query(), &request.headers)
    }

    fn vary(lines: &[&'static str]) -> Option<VaryFields> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(VARY, HeaderValue::from_static(line));
        }
        VaryFields::of(&headers)
    }

    #[test]
    fn vary_ignores_order_case_and_repetition() {
        assert_eq!(
            vary(&["accept, Accept-Encoding"]),
            vary(&["ACCEPT-ENCODING", "accept,, accept"])
        );
    }

    #[test]
    fn star_credentials_and_oversized_values_are_rejected() {
        for line in [
            "*",
            "accept, *",
            "cookie",
            "Authorization",
            "a,b,c,d,e,f,g,h,i",
            "sp ace",
        ] {
            assert_eq!(vary(&[line]), None, "{line}");
        }
        let long = "x".repeat(2_000);
        assert_eq!(
            select(
                &vary(&["accept"]).unwrap(),
                &head("/", &[("accept", &long)])
            ),
            None
        );
    }

    #[test]
    fn a_request_changed_for_a_variant_selects_it() {
        let vary = vary(&["accept-encoding, accept"]).unwrap();
        let original = head(
            "/a?x=1",
            &[
                ("accept-encoding", "gzip"),
                ("accept-encoding", "br"),
                ("accept", "a/b"),
            ],
        );
        let variant = select(&vary, &original).unwrap();
        let mut probe = head("/a?y=2", &[("accept-encoding", "identity")]);
        select_variant(&variant, &mut probe);
        assert_eq!(select(&vary, &probe), Some(variant));
        assert_eq!(probe.uri, "/a?x=1");
        select_variant(&Variant::only(), &mut probe);
        assert_eq!(probe.uri, "/a");
    }
}
