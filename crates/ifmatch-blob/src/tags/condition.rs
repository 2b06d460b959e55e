//! Conditions on the tags of a blob, in the form of Azure's `x-ms-if-tags`.

use std::str::FromStr;

use thiserror::Error;

use super::Tags;

/// A condition on the tags of a blob: comparisons of a tag with a value, joined by `AND`, which binds stronger, and
/// `OR`. Values are compared as text. A comparison with a missing tag is false, as in SQL.
///
/// ```
/// use ifmatch_blob::tags::TagCondition;
///
/// let condition: TagCondition = r#""state" = 'free' OR "state" = 'taken' AND owner < 'n'"#.parse()?;
/// assert!(condition.holds(&"state=free".parse()?));
/// assert!(condition.holds(&"state=taken&owner=me".parse()?));
/// assert!(!condition.holds(&"state=taken".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TagCondition(String);

impl TagCondition {
    /// Returns `true` if the condition holds for these tags.
    pub fn holds(&self, tags: &Tags) -> bool {
        evaluate(&self.0, tags).unwrap_or_default()
    }
}

impl FromStr for TagCondition {
    type Err = InvalidTagCondition;

    fn from_str(text: &str) -> Result<Self, InvalidTagCondition> {
        // All of the text is read, whatever the tags are.
        evaluate(text, &Tags::default())
            .map(|_| Self(text.to_owned()))
            .ok_or(InvalidTagCondition)
    }
}

/// Returns `true` if a condition holds for these tags, or `None` if it is malformed.
fn evaluate(mut rest: &str, tags: &Tags) -> Option<bool> {
    let (mut any, mut all) = (false, true);
    loop {
        // A name that is a word needs no quotes.
        let name = quoted(&mut rest, '"').or_else(|| Some(word(&mut rest).to_owned()))?;
        let operator = ["<>", "<=", ">=", "=", "<", ">"]
            .into_iter()
            .find(|text| rest.trim_start().starts_with(text))?;
        rest = rest.trim_start().strip_prefix(operator)?;
        let value = quoted(&mut rest, '\'')?;
        if name.is_empty() {
            return None;
        }
        all &= tags.get(&name).is_some_and(|tag| match operator {
            "<>" => tag != value,
            "<=" => tag <= value,
            ">=" => tag >= value,
            "=" => tag == value,
            "<" => tag < value,
            _ => tag > value,
        });
        let joint = word(&mut rest);
        if joint.eq_ignore_ascii_case("or") {
            (any, all) = (any | all, true);
        } else if joint.is_empty() && rest.is_empty() {
            return Some(any | all);
        } else if !joint.eq_ignore_ascii_case("and") {
            return None;
        }
    }
}

/// Takes quoted text, in which a quote is doubled.
fn quoted(rest: &mut &str, quote: char) -> Option<String> {
    let mut after = rest.trim_start().strip_prefix(quote)?;
    let mut text = String::new();
    loop {
        let (part, behind) = after.split_once(quote)?;
        text.push_str(part);
        let Some(more) = behind.strip_prefix(quote) else {
            *rest = behind;
            return Some(text);
        };
        text.push(quote);
        after = more;
    }
}

/// Takes a word, which may be empty, and the spaces around it.
fn word<'a>(rest: &mut &'a str) -> &'a str {
    let text = rest.trim_start();
    let end = text
        .find(|char: char| !char.is_ascii_alphanumeric() && char != '_')
        .unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after.trim_start();
    word
}

/// Error returned for text that isn't a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a condition on tags has the form \"name\" = 'value', with =, <>, <, <=, > or >=, joined by AND and OR"
)]
pub struct InvalidTagCondition;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_evaluated_as_sql_would() {
        let tags: Tags = "a=2&b=x%20y&quo%22te=it%27s".parse().unwrap();
        for (text, expected) in [
            ("\"a\" = '2'", true),
            ("a='2'", true),
            ("a = '3'", false),
            ("a <> '3'", true),
            ("a < '3' and a >= '2'", true),
            ("a > '2' OR a <= '1'", false),
            ("a = '10'", false),
            ("a > '10'", true),
            ("c <> 'x'", false),
            ("\"b\" = 'x y'", true),
            ("\"quo\"\"te\" = 'it''s'", true),
            ("a = '1' AND a = '2' OR a = '2'", true),
            ("a = '2' OR a = '1' AND a = '3'", true),
            ("A = '2'", false),
        ] {
            assert_eq!(
                text.parse::<TagCondition>().unwrap().holds(&tags),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "",
            "a",
            "a =",
            "a = b",
            "a = 'b",
            "a == 'b'",
            "= 'b'",
            "a = 'b' AND",
            "a = 'b' c = 'd'",
            "(a = 'b')",
            "a = 'b' XOR c = 'd'",
            "a = 'b';",
            "\"\" = 'b'",
            "@container = 'b'",
            "'a' = 'b'",
        ] {
            assert!(text.parse::<TagCondition>().is_err(), "{text}");
        }
    }
}
