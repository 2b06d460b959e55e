//! The order of headers in the string to sign: as .NET's culture "en-US" sorts, which the service and the SDKs use.
//!
//! Punctuation precedes digits, and digits precede letters; hyphens count only if the rest is equal. Byte order would
//! reject valid signatures of requests with unusual metadata names.

use std::cmp::Ordering;

/// Compares two names in lower case.
pub(super) fn compare(one: &str, other: &str) -> Ordering {
    weights(one)
        .cmp(weights(other))
        .then_with(|| ignorables(one).cmp(&ignorables(other)))
}

/// Returns the ranks of the characters that count.
fn weights(text: &str) -> impl Iterator<Item = u8> {
    text.bytes()
        .map(|byte| WEIGHTS[usize::from(byte)])
        .filter(|weight| *weight > 0)
}

/// The rank of each character; 0 for characters that don't count.
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

/// Returns the positions of hyphens and apostrophes, which decide between names that are otherwise equal: the name with
/// the later one, or none, comes first.
fn ignorables(text: &str) -> Vec<(std::cmp::Reverse<usize>, u8)> {
    let ignored = text
        .bytes()
        .enumerate()
        .filter(|(_, byte)| WEIGHTS[usize::from(*byte)] == 0);
    ignored
        .map(|(at, byte)| (std::cmp::Reverse(at), byte))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// .NET's order, as found in the tables of the SDKs' sources.
    #[test]
    fn names_are_in_the_order_of_the_service() {
        let sorted = [
            "x-ms-meta-a",
            "x-ms-meta-a_b",
            "x-ms-meta-a1",
            "x-ms-meta-ab",
            "x-ms-meta-a-b",
            "x-ms-meta-ab1",
            "x-ms-meta-b",
        ];
        for pair in sorted.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
    }
}
