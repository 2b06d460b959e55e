//! Which conditions a request came with, and which of them decided its answer.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// How many sorts of conditions there are.
pub(crate) const COUNT: usize = 4;

/// The header fields of conditions, in the order in which they are evaluated (RFC 9110 §13.2.2).
pub(crate) const HEADERS: [HeaderName; COUNT] =
    [header::IF_MATCH, header::IF_UNMODIFIED_SINCE, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE];

/// A set of [`HEADERS`], by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions(u8);

impl Conditions {
    /// The conditions of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let places = headers.keys().filter_map(|name| HEADERS.iter().position(|header| header == name));
        Self(places.fold(0, |set, place| set | 1 << place))
    }

    /// The places of all.
    pub(crate) fn all(self) -> impl Iterator<Item = usize> {
        (0..COUNT).filter(move |place| self.has(*place))
    }

    /// The place of the one that a 304 comes from.
    pub(crate) fn not_modified(self) -> Option<usize> {
        (2..4).find(|place| self.has(*place))
    }

    /// The place of the one that a 412 comes from: where there are several, the first, which nearly always decides.
    pub(crate) fn failed(self) -> Option<usize> {
        self.all().next()
    }

    fn has(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }
}

/// Whether an answer is a refusal because of a lease, and not because of a condition.
pub(crate) fn is_by_lease(headers: &HeaderMap) -> bool {
    headers.get("x-ms-error-code").map(HeaderValue::as_bytes).is_some_and(|code| code.starts_with(b"Lease"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(names: &[&'static str]) -> Conditions {
        Conditions::of(
            &names.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x"))).collect(),
        )
    }

    #[test]
    fn the_one_that_decides_is_found_whatever_order_they_came_in() {
        let none = conditions(&["range", "if-range", "host"]);
        assert_eq!((none.all().count(), none.not_modified(), none.failed()), (0, None, None));
        let all = conditions(&["if-modified-since", "if-none-match", "if-unmodified-since", "if-match"]);
        assert_eq!((all.all().count(), all.not_modified(), all.failed()), (4, Some(2), Some(0)));
        let dates = conditions(&["if-modified-since", "if-unmodified-since"]);
        assert_eq!((dates.not_modified(), dates.failed()), (Some(3), Some(1)));
    }
}
