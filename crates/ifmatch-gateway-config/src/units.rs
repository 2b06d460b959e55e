//! Values of settings: sizes and durations (`64KiB`, `30s`), lists of strings, and values given as a string, number or
//! boolean.
//!
//! `bytesize` and `humantime` aren't used: they accept sizes that overflow, and print sizes that don't parse back to
//! the same value.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZero;
use std::str::FromStr;
use std::time::Duration;

use serde::de::value::{SeqAccessDeserializer, StrDeserializer};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A size in bytes, written as an integer with an optional unit: `512`, `64KiB`, `5GiB`, `10MB`.
///
/// ```
/// use ifmatch_gateway_config::units::ByteSize;
///
/// let size: ByteSize = "64KiB".parse().unwrap();
/// assert_eq!(size.bytes(), 65_536);
/// assert_eq!(size.to_string(), "64KiB");
/// assert!("64 parsecs".parse::<ByteSize>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

/// A duration, written as an integer with a unit: `500ms`, `30s`, `5m`, `1h`.
///
/// ```
/// use ifmatch_gateway_config::units::Span;
///
/// let span: Span = "90s".parse().unwrap();
/// assert_eq!(span.duration(), std::time::Duration::from_secs(90));
/// assert_eq!(span.to_string(), "90s");
/// assert!("90".parse::<Span>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

/// Error returned for an invalid size or duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidQuantity(String);

/// Units of sizes, in the order in which they are tried for display: the first one that divides the size is used.
const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Units of durations, in milliseconds.
const SPANS: [(&str, u64); 4] = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

impl ByteSize {
    /// Creates a size.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the number of bytes, or `usize::MAX` if that is smaller.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Span {
    /// Creates a duration from seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// Returns the duration.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = split(text);
        let factor = if unit.is_empty() {
            Some(1)
        } else {
            factor(&SIZES, unit)
        };
        let bytes = number
            .zip(factor)
            .and_then(|(number, factor)| number.checked_mul(factor));
        bytes.map(Self).ok_or_else(|| {
            InvalidQuantity("write a size such as 512, 64KiB, 10MB or 5GiB".to_owned())
        })
    }
}

impl FromStr for Span {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = split(text);
        let millis = number
            .zip(factor(&SPANS, unit))
            .and_then(|(number, factor)| number.checked_mul(factor));
        let span = millis.map(|millis| Self(Duration::from_millis(millis)));
        span.ok_or_else(|| {
            InvalidQuantity(match number {
                Some(number) if unit.is_empty() => {
                    format!("add a unit, such as {number}s or {number}m")
                }
                _ => "write a time such as 500ms, 30s, 5m or 1h".to_owned(),
            })
        })
    }
}

/// Splits `64 KiB` into 64 and `KiB`. There is no number if it is malformed or too large.
fn split(text: &str) -> (Option<u64>, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (text[..end].parse().ok(), text[end..].trim_start())
}

/// Returns the size of a unit, in any case.
fn factor(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .map(|(_, factor)| *factor)
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = SIZES
            .iter()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(1_000) {
            write!(f, "{}s", millis / 1_000)
        } else {
            write!(f, "{millis}ms")
        }
    }
}

deserialize_by_from_str!(ByteSize: "a size, such as \"64KiB\"");
deserialize_by_from_str!(Span: "a time, such as \"30s\"");

/// Parses a number of at least one.
pub fn count(text: &str) -> Result<NonZero<usize>, String> {
    text.parse()
        .map_err(|_| "write a whole number from 1, such as 4".to_owned())
}

/// Reads a text, or a list of texts.
pub(super) fn one_or_many<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct OneOrMany<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or a list of strings")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![T::deserialize(StrDeserializer::new(text))?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    deserializer.deserialize_any(OneOrMany(PhantomData))
}

/// Implements `Deserialize` by `FromStr`, of a text, a number or `true` and `false`. An error says what is expected.
macro_rules! deserialize_by_from_str {
    ($type:ty: $expected:literal) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = crate::units::text(deserializer, $expected)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(super) use deserialize_by_from_str;

/// Reads a value that is written as a text, or as a number or `true` and `false`, which are texts for flags and variables.
pub(super) fn text<'de, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<String, D::Error> {
    struct Text(&'static str);

    impl Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_bool<E: de::Error>(self, is_on: bool) -> Result<String, E> {
            Ok(is_on.to_string())
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
            Ok(number.to_string())
        }
    }

    deserializer.deserialize_any(Text(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip_and_reject_overflow() {
        for (text, bytes) in [
            ("0", 0),
            ("0B", 0),
            ("1", 1),
            ("1KB", 1_000),
            ("1kib", 1_024),
            ("5 GiB", 5 << 30),
            ("3MB", 3_000_000),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bytes in [0, 1, 1_000, 1_024, 1_500, 65_536, 5 << 40, u64::MAX] {
            let shown = ByteSize(bytes).to_string();
            assert_eq!(shown.parse(), Ok(ByteSize(bytes)), "{shown}");
        }
        for text in [
            "",
            "KiB",
            "-1",
            "1.5MiB",
            "99999999999TiB",
            "18446744073709551616",
            "1 2",
        ] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, millis) in [
            ("0s", 0),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("30 s", 30_000),
        ] {
            assert_eq!(
                text.parse(),
                Ok(Span(Duration::from_millis(millis))),
                "{text}"
            );
        }
        for text in ["", "30", "s", "-1s", "1.5s", "1d", "18446744073709551615h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
