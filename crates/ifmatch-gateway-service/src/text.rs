//! Text of others: names, header fields, contents. Shown with its control characters visible, so it can't imitate or hide.

use std::borrow::Borrow;

use ifmatch_core::date::HttpDate;
use ifmatch_gateway_config::text::SEGMENT;
pub(crate) use ifmatch_gateway_config::text::Text;
use percent_encoding::{AsciiSet, percent_decode_str, utf8_percent_encode};

/// ASCII characters that are encoded in a path: those of a segment but the slash.
const PATH: &AsciiSet = &SEGMENT.remove(b'/');

/// Number of characters of a tag that are shown.
const SHORT: usize = 8;

/// Encodes the value of a parameter of a query.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Encodes the path of a blob: a container, and a name with slashes.
pub(crate) fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Decodes a path as it was sent. Returns it as it is if it isn't UTF-8.
pub(crate) fn decoded(path: &str) -> Text {
    percent_decode_str(path)
        .decode_utf8()
        .map_or_else(|_| path.into(), |path| Text(path.into_owned()))
}

/// Returns a count with its noun, such as "1 byte" or "2 bytes".
pub(crate) fn counted(count: impl Into<u64>, noun: &str) -> String {
    let count = count.into();
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Returns a number of bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let step = units
        .len()
        .min(usize::try_from(count.max(1).ilog2() / 10).unwrap_or(0) + 1)
        - 1;
    if step == 0 {
        return counted(count, "byte");
    }
    let tenths = (u128::from(count) * 10) >> (10 * step);
    format!("{}.{} {}", tenths / 10, tenths % 10, units[step])
}

/// Returns a time span in words. The script does the same.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the age of a process, or of a blob"
)]
pub(crate) fn span(seconds: f64) -> String {
    let count = |unit: f64| (seconds.max(0.0) / unit).round() as u64;
    match seconds.round() {
        ..120.0 => counted(count(1.0), "second"),
        ..7200.0 => counted(count(60.0), "minute"),
        ..172_800.0 => counted(count(3600.0), "hour"),
        _ => counted(count(86_400.0), "day"),
    }
}

/// Returns a number of seconds in words.
#[expect(clippy::cast_precision_loss, reason = "a lifetime")]
pub(crate) fn seconds(count: u64) -> String {
    span(count as f64)
}

/// Returns the element of a past time, in seconds since 1970.
pub(crate) fn since(now: impl Borrow<f64>, then: impl Borrow<f64>) -> String {
    time(now.borrow() - then.borrow(), *then.borrow(), 1)
}

/// Returns the element of the time that is left until another one.
pub(crate) fn until(now: impl Borrow<f64>, then: impl Borrow<f64>) -> String {
    time(then.borrow() - now.borrow(), *then.borrow(), -1)
}

/// Returns the element of a past date of HTTP, or nothing if the text isn't one.
#[expect(
    clippy::cast_precision_loss,
    reason = "seconds of dates are below 2^53"
)]
pub(crate) fn since_date(now: impl Borrow<f64>, date: &Text) -> String {
    HttpDate::parse(date.0.as_bytes())
        .map(|date| since(now, date.unix() as f64))
        .unwrap_or_default()
}

/// Returns an element with a time span, which the script changes by `step` each second. Nothing in it is text of others, so it needs no
/// escaping.
#[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
fn time(seconds: f64, then: f64, step: i8) -> String {
    let date = HttpDate::from_unix(then as i64).to_string();
    let mut words = date.split(' ').skip(1);
    let [day, month, year, time] = std::array::from_fn(|_| words.next().unwrap_or_default());
    let month = "JanFebMarAprMayJunJulAugSepOctNovDec"
        .find(month)
        .unwrap_or_default()
        / 3
        + 1;
    let ago = if step == 1 { " ago" } else { "" };
    format!(
        "<time data-seconds=\"{:.0}\" data-step=\"{step}\" datetime=\"{year}-{month:02}-{day}T{time}Z\" \
         title=\"{year}-{month:02}-{day} {time} UTC\">{}{ago}</time>",
        seconds.max(0.0),
        span(seconds)
    )
}

/// Returns the beginning of a tag, which tells versions apart for a reader.
pub(crate) fn short(tag: &Text) -> Text {
    let opaque = tag.0.strip_prefix("W/").unwrap_or(&tag.0).trim_matches('"');
    Text(opaque.chars().take(SHORT).collect())
}

/// Returns `true` if one of these tags differs from `current`, but not in what is shown of it.
pub(crate) fn look_same<'a>(mut tags: impl Iterator<Item = &'a Text>, current: &Text) -> bool {
    tags.any(|tag| tag != current && short(tag) == short(current))
}

/// Returns a number with one digit after the point, if it is small.
pub(crate) fn number(number: f64) -> String {
    if number < 10.0 && number.fract() > 0.0 {
        format!("{number:.1}")
    } else {
        format!("{number:.0}")
    }
}

/// Returns a share in percent.
pub(crate) fn percent(part: impl Borrow<f64>, whole: impl Borrow<f64>) -> String {
    let (part, whole) = (*part.borrow(), *whole.borrow());
    if whole > 0.0 {
        format!("{:.1}%", 100.0 * part / whole)
    } else {
        "–".to_owned()
    }
}

/// Returns a share of a count in percent.
#[expect(
    clippy::cast_precision_loss,
    reason = "one digit after the point needs no more"
)]
pub(crate) fn percent_of(part: u64, whole: u64) -> String {
    percent(part as f64, whole as f64)
}

/// Returns seconds in milliseconds.
pub(crate) fn millis(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1000.0)
}

/// Returns a counted number of bytes for people.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of bytes is below 2^53"
)]
pub(crate) fn bytes_of(count: impl Borrow<f64>) -> String {
    bytes(count.borrow().max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded() {
        assert_eq!(encode_path("c/a b/?ü&\"<"), "c/a%20b/%3F%C3%BC%26%22%3C");
    }

    #[test]
    fn sizes_and_times_are_in_words() {
        let sizes = [0, 1, 1023, 1536, 10 << 20].map(bytes);
        assert_eq!(
            sizes,
            ["0 bytes", "1 byte", "1023 bytes", "1.5 KiB", "10.0 MiB"]
        );
        let spans = [-5.0, 1.4, 119.6, 600.0, 86_400.0, 200_000.0].map(span);
        assert_eq!(
            spans,
            [
                "0 seconds",
                "1 second",
                "2 minutes",
                "10 minutes",
                "24 hours",
                "2 days"
            ]
        );
        let time = since(1_000_000_060.0, 1_000_000_000.4);
        assert!(
            time.contains("title=\"2001-09-09 01:46:40 UTC\">60 seconds ago<"),
            "{time}"
        );
        assert!(time.contains("datetime=\"2001-09-09T01:46:40Z\""), "{time}");
        let date = since_date(1_000_000_060.0, &"Sun, 09 Sep 2001 01:46:40 GMT".into());
        assert!(date.ends_with(">60 seconds ago</time>"), "{date}");
    }

    #[test]
    fn names_are_decoded_and_tags_short() {
        for (path, expected) in [
            ("/docs/Q4%20%C3%9C.md", "/docs/Q4 Ü.md"),
            ("/100%25", "/100%"),
            ("/100% done", "/100% done"),
            ("/%ff", "/%ff"),
        ] {
            assert_eq!(decoded(path).0, expected);
        }
        for (tag, expected) in [
            ("\"0123456789\"", "01234567"),
            ("W/\"a\"", "a"),
            ("\"äöüß\"", "äöüß"),
        ] {
            assert_eq!(short(&tag.into()).0, expected);
        }
        let [one, two, other] = ["\"01234567-1\"", "\"01234567-2\"", "\"x\""].map(Text::from);
        assert!(look_same([&other, &one].into_iter(), &two));
        assert!(!look_same([&other, &two].into_iter(), &two));
    }
}
