//! The order of header fields in a string to sign: that of .NET's culture "en-US", which the service and the SDKs use.
//!
//! Punctuation comes before digits, digits before letters; a hyphen counts only where the rest is equal. Plain byte order
//! would refuse the signatures of requests whose metadata have such names.

use std::cmp::Ordering;

/// Which of two names in lower case comes first.
pub(super) fn compare(one: &str, other: &str) -> Ordering {
    weights(one).cmp(weights(other)).then_with(|| ignorables(one).cmp(&ignorables(other)))
}

/// The characters that count, by their places in the order.
fn weights(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().map(|byte| WEIGHTS[usize::from(byte)]).filter(|weight| *weight > 0)
}

/// The place of each character among those that count; 0 for those that do not.
const WEIGHTS: [u8; 256] = {
    let order = b"!#$%&*.^_`|~+0123456789abcdefghijklmnopqrstuvwxyz";
    let mut weights = [0; 256];
    let mut place: u8 = 1;
    while place as usize <= order.len() {
        let byte = order[place as usize - 1];
        weights[byte as usize] = place;
        weights[byte.to_ascii_uppercase() as usize] = place;
        place += 1;
    }
    weights
};

/// What decides between names that are equal otherwise: the first hyphen or apostrophe that the other one has not. The name
/// in which it stands further behind, or not at all, comes first.
fn ignorables(text: &str) -> Vec<(std::cmp::Reverse<usize>, u8)> {
    let ignored = text.bytes().enumerate().filter(|(_, byte)| WEIGHTS[usize::from(*byte)] == 0);
    ignored.map(|(at, byte)| (std::cmp::Reverse(at), byte)).collect()
}
