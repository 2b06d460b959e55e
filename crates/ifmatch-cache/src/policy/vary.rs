//! `Vary` (RFC 9111 §4.1): selection among the stored responses for a URI.

use http::header::{ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, VARY};
use http::{HeaderMap, HeaderName};

use super::fields::{members, split_all};

/// Maximum number of fields in `Vary`. A response with more isn't stored.
const MAX_FIELDS: usize = 16;

/// The request fields that select a response, in alphabetical order.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue};
/// use ifmatch_cache::policy::vary::Vary;
///
/// let mut headers = HeaderMap::new();
/// headers.append(header::VARY, HeaderValue::from_static("Accept-Language , Accept-Encoding"));
/// assert_eq!(Vary::of(&headers).unwrap().names().len(), 2);
/// headers.append(header::VARY, HeaderValue::from_static("*"));
/// assert_eq!(Vary::of(&headers), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vary(Box<[HeaderName]>);

impl Vary {
    /// Parses all lines of the field. Returns `None` if no request can match: a member is `*` or not a field name, or there are
    /// too many.
    pub fn of(response: &HeaderMap) -> Option<Self> {
        if !response.contains_key(VARY) {
            return Some(Self::default());
        }
        let name = |member: &[u8]| {
            HeaderName::from_bytes(member)
                .ok()
                .filter(|name| name.as_str() != "*")
        };
        let mut names = members(response.get_all(VARY))
            .map(name)
            .collect::<Option<Vec<_>>>()?;
        names.sort_unstable_by(|left, right| left.as_str().cmp(right.as_str()));
        names.dedup();
        (names.len() <= MAX_FIELDS).then(|| Self(names.into()))
    }

    /// Returns the fields with these names. Returns `None` if one isn't a name.
    pub(crate) fn from_names<'a>(names: impl Iterator<Item = &'a str>) -> Option<Self> {
        names
            .map(|name| name.parse().ok())
            .collect::<Option<Vec<_>>>()
            .map(|names| Self(names.into()))
    }

    /// Returns the field names.
    pub fn names(&self) -> &[HeaderName] {
        &self.0
    }

    /// Returns the values of these fields in a request, normalized so that equivalent requests compare equal.
    ///
    /// Several lines form one list; white space around commas is ignored. In `Accept-Encoding`, `Accept-Language` and
    /// `Accept-Charset`, case and white space around semicolons are ignored too. All other differences matter, since
    /// many origins compare text: the order of members, empty members, and the spelling of weights. A response is for equal
    /// selections only, also if another request prefers its language or coding: it may depend on the rest of the field.
    ///
    /// ```
    /// use http::{header, HeaderMap, HeaderValue};
    /// use ifmatch_cache::policy::vary::Vary;
    ///
    /// let vary = |line| HeaderMap::from_iter([(header::VARY, HeaderValue::from_static(line))]);
    /// let accept = |line| HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(line))]);
    /// let vary = Vary::of(&vary("accept-encoding")).unwrap();
    /// assert_eq!(vary.select(&accept("gzip, br")), vary.select(&accept("GZIP,br")));
    /// assert_ne!(vary.select(&accept("gzip, br")), vary.select(&accept("br, gzip")));
    /// ```
    pub fn select(&self, request: &HeaderMap) -> Selection {
        Selection(self.0.iter().map(|name| normal(name, request)).collect())
    }
}

/// The normalized values of the fields named by [`Vary`] in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection(Box<[Option<Box<[u8]>>]>);

impl Selection {
    /// Returns the selection with these values.
    pub(crate) fn from_values(values: impl Iterator<Item = Option<Vec<u8>>>) -> Self {
        Self(values.map(|value| value.map(Into::into)).collect())
    }

    /// Returns the values.
    pub(crate) fn values(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.0.iter().map(Option::as_deref)
    }

    /// Returns the size of the values in memory, in bytes.
    pub fn size(&self) -> usize {
        self.0
            .iter()
            .flatten()
            .map(|value| value.len() + size_of::<Option<Box<[u8]>>>())
            .sum()
    }
}

fn normal(name: &HeaderName, request: &HeaderMap) -> Option<Box<[u8]>> {
    if !request.contains_key(name) {
        return None;
    }
    let lines = request.get_all(name);
    let members = lines
        .into_iter()
        .flat_map(|line| split_all(line.as_bytes()));
    if [ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE].contains(name) {
        return Some(
            members
                .map(in_lower_case)
                .collect::<Vec<_>>()
                .join(&b","[..])
                .into(),
        );
    }
    Some(members.collect::<Vec<_>>().join(&b","[..]).into())
}

/// Returns a member in lower case, without white space around semicolons.
fn in_lower_case(member: &[u8]) -> Vec<u8> {
    let parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    parts
        .collect::<Vec<_>>()
        .join(&b";"[..])
        .to_ascii_lowercase()
}
