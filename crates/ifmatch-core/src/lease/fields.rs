//! ifmatch's own header fields of leases: the id, and the fencing token and the holder, which every dialect has.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::azure::{HeaderError, single};
use super::{Holder, Lease, LeaseId, LeaseUse};
use crate::revision::Revision;

/// The lease's id, in the plain dialect and the layer.
pub const ID: HeaderName = HeaderName::from_static("lease-id");
/// The fencing token, in the response to a lease operation, and in a write that must be rejected if it's late.
pub const TOKEN: HeaderName = HeaderName::from_static("lease-token");
/// The label of a lease's holder.
pub const HOLDER: HeaderName = HeaderName::from_static("lease-holder");

/// Largest fencing token that a write may name. Each lease acquired after it still gets a larger one.
const MAX_TOKEN: u64 = u64::MAX >> 1;

/// Reads the label of the holder.
///
/// # Errors
/// Fails if the field is repeated or not a [`Holder`].
pub fn holder(headers: &HeaderMap) -> Result<Option<Holder>, HeaderError> {
    let Some(text) = single(headers, HOLDER)? else {
        return Ok(None);
    };
    text.parse()
        .map(Some)
        .map_err(|_| HeaderError::Invalid(HOLDER, "1 to 64 visible ASCII characters"))
}

/// Returns the lease use of a write with this lease id, including the fencing token if the request names one.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use ifmatch_core::lease::{LeaseUse, fields};
/// use ifmatch_core::record::Revision;
///
/// let mut headers = HeaderMap::new();
/// assert_eq!(fields::write(&headers, None), Ok(LeaseUse::Write(None)));
/// headers.insert("lease-token", HeaderValue::from_static("34"));
/// let fenced = LeaseUse::Fenced { id: None, token: Revision::new(34) };
/// assert_eq!(fields::write(&headers, None), Ok(fenced));
/// ```
///
/// # Errors
/// Fails if the token is repeated, or not a number below 2^63.
pub fn write(headers: &HeaderMap, id: Option<LeaseId>) -> Result<LeaseUse, HeaderError> {
    let Some(text) = single(headers, TOKEN)? else {
        return Ok(LeaseUse::Write(id));
    };
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let token = digits
        .and_then(|digits| digits.parse().ok())
        .filter(|token| *token <= MAX_TOKEN);
    let token = token.ok_or(HeaderError::Invalid(
        TOKEN,
        "the lease-token that the lease's acquisition returned",
    ))?;
    Ok(LeaseUse::Fenced {
        id,
        token: Revision::new(token),
    })
}

/// Returns the header field that tells a lease's holder its fencing token.
pub fn token_of(lease: &Lease) -> (HeaderName, HeaderValue) {
    (TOKEN, lease.token().get().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::Timestamp;

    #[test]
    fn a_lease_gets_a_larger_token_than_every_token_that_was_named() {
        for named in [
            "0",
            "1",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
        ] {
            let headers = HeaderMap::from_iter([(TOKEN, HeaderValue::from_static(named))]);
            let token = write(&headers, None).ok().and_then(LeaseUse::token);
            assert!(
                token.is_none_or(|token| token.next(Timestamp::default()) > token),
                "{named}"
            );
        }
    }
}
