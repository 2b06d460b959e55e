//! The conditions of a request, and the one that decided its response.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ifmatch_core::lease::azure::ERROR_CODE;
use ifmatch_core::precondition::Preconditions;

/// Number of condition headers.
pub(crate) const COUNT: usize = 4;

/// The condition headers, in order of evaluation (RFC 9110 §13.2.2).
pub(crate) const HEADERS: [HeaderName; COUNT] = Preconditions::HEADERS;

/// A set of indices into [`HEADERS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConditionSet(u8);

impl ConditionSet {
    /// Returns the conditions of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let indices = headers
            .keys()
            .filter_map(|name| HEADERS.iter().position(|header| header == name));
        Self(indices.fold(0, |set, index| set | 1 << index))
    }

    /// Returns all indices, in order of evaluation.
    pub(crate) fn all(self) -> impl Iterator<Item = usize> {
        (0..COUNT).filter(move |index| self.has(*index))
    }

    /// Returns the index of the condition that caused a 304: `If-None-Match`, or `If-Modified-Since`.
    pub(crate) fn not_modified(self) -> Option<usize> {
        (2..COUNT).find(|index| self.has(*index))
    }

    /// Returns the index of the condition that caused a 412. Of several conditions this is the first, which nearly
    /// always decides.
    pub(crate) fn failed(self) -> Option<usize> {
        self.all().next()
    }

    /// Returns the names of the headers, for a log, unless there are none.
    pub(crate) fn names(self) -> Option<String> {
        let names: Vec<&str> = self.all().map(|index| HEADERS[index].as_str()).collect();
        (!names.is_empty()).then(|| names.join(","))
    }

    /// Returns the outcome of the conditions, or of a lease, that decided about a response.
    pub(crate) fn decision(self, status: StatusCode, by_lease: bool) -> Option<&'static str> {
        match status {
            _ if by_lease => Some("lease"),
            StatusCode::NOT_MODIFIED => Some("not_modified"),
            StatusCode::PRECONDITION_FAILED => Some("failed"),
            StatusCode::PRECONDITION_REQUIRED => Some("required"),
            status if status.is_success() && self != Self::default() => Some("met"),
            _ => None,
        }
    }

    fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }
}

/// Returns `true` if a request was rejected because of a lease, not because of a condition.
pub(crate) fn is_by_lease(headers: &HeaderMap) -> bool {
    headers
        .get(ERROR_CODE)
        .map(HeaderValue::as_bytes)
        .is_some_and(|code| code.starts_with(b"Lease"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(names: &[&'static str]) -> ConditionSet {
        ConditionSet::of(
            &names
                .iter()
                .map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x")))
                .collect(),
        )
    }

    #[test]
    fn the_deciding_condition_does_not_depend_on_header_order() {
        let none = conditions(&["range", "if-range", "host"]);
        assert_eq!(
            (none.all().count(), none.not_modified(), none.failed()),
            (0, None, None)
        );
        let all = conditions(&[
            "if-modified-since",
            "if-none-match",
            "if-unmodified-since",
            "if-match",
        ]);
        assert_eq!(
            (all.all().count(), all.not_modified(), all.failed()),
            (4, Some(2), Some(0))
        );
        let dates = conditions(&["if-modified-since", "if-unmodified-since"]);
        assert_eq!((dates.not_modified(), dates.failed()), (Some(3), Some(1)));
    }
}
