//! Comparison of a page with real output, which has other versions, tokens and lease ids.

use std::collections::BTreeMap;
use std::ops::Range;

/// Any text within a line of a page.
const ELLIPSIS: char = '…';
/// Lengths of the parts of a UUID.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];
/// Number of digits of a time in microseconds.
const MICROSECONDS: usize = 16;

/// Values of the page that differ in each run, with this run's.
#[derive(Default)]
pub(super) struct Transcript(BTreeMap<String, String>);

impl Transcript {
    /// Compares lines of a page with the output of the command, which may have lines in between.
    ///
    /// A value must be the same wherever the page repeats it, and different values must differ.
    ///
    /// # Errors
    /// Returns the first line that is missing.
    pub(super) fn compare<'a>(
        &mut self,
        expected: &'a [String],
        output: &[String],
    ) -> Result<(), &'a str> {
        let mut rest = output.iter();
        let mut shown = expected
            .iter()
            .filter(|line| !line.is_empty() && !line.starts_with(ELLIPSIS));
        shown.try_for_each(|line| {
            rest.find(|actual| self.matches(line, actual))
                .map(drop)
                .ok_or(&**line)
        })
    }

    /// Replaces values of the page with this run's.
    pub(super) fn with_actual_values(&self, command: &str) -> String {
        self.0
            .iter()
            .fold(command.to_owned(), |command, (shown, actual)| {
                command.replace(shown, actual)
            })
    }

    fn matches(&mut self, shown: &str, actual: &str) -> bool {
        if shown.contains(ELLIPSIS) {
            return matches_in_part(&masked(shown), &masked(actual));
        }
        if masked(shown) != masked(actual) {
            return false;
        }
        let pairs: Vec<_> = values(shown).into_iter().zip(values(actual)).collect();
        let known = |(one, other): &(&str, &str)| match self.0.get(*one) {
            Some(bound) => bound == other,
            None => !self.0.values().any(|bound| bound == other),
        };
        let same = pairs.iter().all(known);
        if same {
            self.0.extend(
                pairs
                    .into_iter()
                    .map(|(one, other)| (one.to_owned(), other.to_owned())),
            );
        }
        same
    }
}

/// Returns a text in which all values that differ in each run are the same, and so are numbers of seconds.
pub(super) fn masked(text: &str) -> String {
    let mut masked = text.to_owned();
    for range in ranges(text).into_iter().rev() {
        masked.replace_range(range, "*");
    }
    let seconds = |word: &str| {
        word.strip_suffix('s')
            .is_some_and(|digits| digits.parse::<u32>().is_ok())
    };
    masked
        .split_inclusive(' ')
        .map(|word| if seconds(word.trim_end()) { "* " } else { word })
        .collect()
}

/// Compares a line in which ellipses stand for any text.
fn matches_in_part(shown: &str, actual: &str) -> bool {
    let mut parts = shown.split(ELLIPSIS);
    let Some(mut rest) = parts.next().and_then(|first| actual.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in between {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn values(line: &str) -> Vec<&str> {
    ranges(line).into_iter().map(|range| &line[range]).collect()
}

/// Returns the ranges of UUIDs and of times in microseconds.
fn ranges(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric();
        let word = text.as_bytes()[at..]
            .iter()
            .take_while(|byte| is_word(byte))
            .count();
        let length =
            uuid(&text.as_bytes()[at..]).or_else(|| microseconds(&text.as_bytes()[at..at + word]));
        ranges.extend(length.map(|length| at..at + length));
        at += length.unwrap_or(word).max(1);
    }
    ranges
}

fn uuid(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    for (index, length) in UUID.into_iter().enumerate() {
        if index > 0 {
            (text.get(at) == Some(&b'-')).then_some(())?;
            at += 1;
        }
        text.get(at..at + length)?
            .iter()
            .all(u8::is_ascii_hexdigit)
            .then_some(())?;
        at += length;
    }
    Some(at)
}

fn microseconds(word: &[u8]) -> Option<usize> {
    (word.len() == MICROSECONDS && word.iter().all(u8::is_ascii_digit)).then_some(MICROSECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "etag: \"ab-1795257097601880\"";
    const SECOND: &str = "lease-id: 936da01f-9abd-4d9d-80c7-02af85c822a8";

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_that_differ_in_each_run_are_found() {
        assert_eq!(masked(FIRST), "etag: \"ab-*\"");
        assert_eq!(masked(SECOND), "lease-id: *");
        assert_eq!(
            masked("é 17952570976018801 936da01f-9abd"),
            "é 17952570976018801 936da01f-9abd"
        );
        assert_eq!(
            masked("leased  52s   60s is 5 s"),
            masked("leased  5s   60s is 5 s")
        );
    }

    #[test]
    fn the_output_may_have_more_lines() {
        let mut transcript = Transcript::default();
        assert_eq!(
            transcript.compare(&lines(&["a", "", "c"]), &lines(&["a", "b", "c"])),
            Ok(())
        );
        assert_eq!(
            transcript.compare(&lines(&["c", "a"]), &lines(&["a", "c"])),
            Err("a")
        );
        assert!(
            transcript
                .compare(
                    &lines(&["{\"a\":…,\"z\":1}"]),
                    &lines(&["{\"a\":7,\"b\":8,\"z\":1}"])
                )
                .is_ok()
        );
        assert_eq!(
            transcript.compare(&lines(&["a … z"]), &lines(&["a b"])),
            Err("a … z")
        );
    }

    #[test]
    fn a_repeated_value_must_repeat() {
        let mut transcript = Transcript::default();
        let (one, other) = ("x-1000000000000001", "x-1000000000000002");
        assert!(
            transcript
                .compare(&lines(&[FIRST]), &lines(&["etag: \"ab-1000000000000001\""]))
                .is_ok()
        );
        assert_eq!(
            transcript.with_actual_values("-H 1795257097601880"),
            "-H 1000000000000001"
        );
        assert!(
            transcript
                .compare(&lines(&["x-1795257097601880"]), &lines(&[other]))
                .is_err()
        );
        assert!(
            transcript
                .compare(&lines(&["x-1111111111111111"]), &lines(&[one]))
                .is_err()
        );
    }
}
