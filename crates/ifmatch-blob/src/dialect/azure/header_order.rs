//! The order of header fields in a string to sign: that of .NET's culture "en-US", which the service and the SDKs use.
//!
//! Punctuation comes before digits, digits before letters; a hyphen counts only where the rest is equal. Plain byte order
//! would refuse the signatures of requests whose metadata have such names.

use std::cmp::Ordering;

/// Which of two names in lower case comes first.
pub(super) fn compare(one: &str, other: &str) -> Ordering {
    let weights = |text: &str| text.bytes().map(weight).filter(|weight| *weight > 0).collect::<Vec<u8>>();
    weights(one).cmp(&weights(other)).then_with(|| ignorables(one).cmp(&ignorables(other)))
}

/// The place of a character among those that count; 0 for those that do not.
fn weight(byte: u8) -> u8 {
    const ORDER: &[u8] = b"!#$%&*.^_`|~+0123456789abcdefghijklmnopqrstuvwxyz";
    let place = ORDER.iter().position(|other| *other == byte.to_ascii_lowercase());
    place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or_default()
}

/// What decides between names that are equal otherwise: the first hyphen or apostrophe that the other one has not. The name
/// in which it stands further behind, or not at all, comes first.
fn ignorables(text: &str) -> Vec<(std::cmp::Reverse<usize>, u8)> {
    let ignored = text.bytes().enumerate().filter(|(_, byte)| weight(*byte) == 0);
    ignored.map(|(at, byte)| (std::cmp::Reverse(at), byte)).collect()
}
