//! Weighted preference lists (RFC 9110 §12.4.2).

use std::cmp::Reverse;

use http::header::{ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE};
use http::{HeaderName, HeaderValue};

use crate::policy::fields::{is_token, members};

/// Returns `true` if the field is a list of preferences compared case-insensitively.
pub(super) fn is_case_insensitive(name: &HeaderName) -> bool {
    [ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE].contains(name)
}

/// Returns a member in lower case, without white space around semicolons.
pub(super) fn normal(member: &[u8]) -> Vec<u8> {
    let parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    parts.collect::<Vec<_>>().join(&b";"[..]).to_ascii_lowercase()
}

/// Returns the single member with the highest weight, unless it is a wildcard.
pub(super) fn best<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> Option<Vec<u8>> {
    let mut list: Vec<Preference> = members(lines).map(Preference::parse).collect();
    list.sort_by_key(|item| Reverse(item.weight));
    let alone = list.get(1).is_none_or(|second| list.first().is_some_and(|first| second.weight < first.weight));
    let first = list.into_iter().next().filter(|first| alone && first.weight > 0)?;
    (is_token(&first.value) && !first.value.contains(&b'*')).then_some(first.value)
}

struct Preference {
    value: Vec<u8>,
    /// In thousandths.
    weight: u16,
}

impl Preference {
    /// Parses a member. If its weight is malformed, it counts as part of the value.
    fn parse(member: &[u8]) -> Self {
        let parameter = member.iter().rposition(|byte| *byte == b';');
        let weighed = parameter.and_then(|at| Some((&member[..at], weight(member[at + 1..].trim_ascii())?)));
        let (value, weight) = weighed.unwrap_or((member, 1_000));
        Self { value: value.trim_ascii().to_ascii_lowercase(), weight }
    }
}

/// Parses a weight such as `q=0.5`, in thousandths.
fn weight(parameter: &[u8]) -> Option<u16> {
    let digits = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let (whole, decimals) = match digits {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        _ => return None,
    };
    let scale = [100, 10, 1];
    let digit = |(byte, scale): (&u8, u16)| byte.is_ascii_digit().then(|| u16::from(*byte - b'0') * scale);
    let thousandths = decimals.iter().zip(scale).map(digit).sum::<Option<u16>>()?;
    let weight = u16::from(whole - b'0') * 1_000 + thousandths;
    (weight <= 1_000).then_some(weight)
}
