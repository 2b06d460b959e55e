//! Conditions on the tags of a blob, in the form of Azure's `x-ms-if-tags`.

use std::cmp::Ordering;
use std::str::FromStr;

use thiserror::Error;

use super::Tags;

/// A condition on the tags of a blob: comparisons of a tag with a value, joined by `AND`, which binds stronger, and `OR`. Values are
/// compared as text. A tag that isn't there makes each comparison false, as in SQL.
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
pub struct TagCondition(Vec<Vec<Comparison>>);

#[derive(Clone, Debug)]
struct Comparison {
    name: String,
    holds: fn(Ordering) -> bool,
    value: String,
}

impl TagCondition {
    /// Returns `true` if the condition holds for these tags.
    pub fn holds(&self, tags: &Tags) -> bool {
        let compare = |one: &Comparison| tags.get(&one.name).is_some_and(|tag| (one.holds)(tag.cmp(&one.value)));
        self.0.iter().any(|all| all.iter().all(compare))
    }
}

impl FromStr for TagCondition {
    type Err = InvalidTagCondition;

    fn from_str(text: &str) -> Result<Self, InvalidTagCondition> {
        let (mut rest, mut any) = (text, vec![Vec::new()]);
        loop {
            let name = name(&mut rest)?;
            let holds = operator(&mut rest)?;
            let value = quoted(&mut rest, '\'').ok_or(InvalidTagCondition)?;
            any.last_mut().ok_or(InvalidTagCondition)?.push(Comparison { name, holds, value });
            match word(&mut rest).to_ascii_uppercase().as_str() {
                "AND" => {}
                "OR" => any.push(Vec::new()),
                "" if rest.is_empty() => return Ok(Self(any)),
                _ => return Err(InvalidTagCondition),
            }
        }
    }
}

/// Takes the name of a tag, which needs no quotes if it is a word.
fn name(rest: &mut &str) -> Result<String, InvalidTagCondition> {
    let name = quoted(rest, '"').unwrap_or_else(|| word(rest).to_owned());
    if name.is_empty() { Err(InvalidTagCondition) } else { Ok(name) }
}

fn operator(rest: &mut &str) -> Result<fn(Ordering) -> bool, InvalidTagCondition> {
    let operators: [(&str, fn(Ordering) -> bool); 6] = [
        ("<>", Ordering::is_ne),
        ("<=", Ordering::is_le),
        (">=", Ordering::is_ge),
        ("=", Ordering::is_eq),
        ("<", Ordering::is_lt),
        (">", Ordering::is_gt),
    ];
    *rest = rest.trim_start();
    let found = operators.into_iter().find_map(|(text, holds)| Some((rest.strip_prefix(text)?, holds)));
    let (after, holds) = found.ok_or(InvalidTagCondition)?;
    *rest = after;
    Ok(holds)
}

/// Takes a text in quotes, in which a quote is doubled.
fn quoted(rest: &mut &str, quote: char) -> Option<String> {
    let mut after = rest.trim_start().strip_prefix(quote)?;
    let mut text = String::new();
    loop {
        let (part, behind) = after.split_once(quote)?;
        text.push_str(part);
        match behind.strip_prefix(quote) {
            Some(more) => (text, after) = (text + &quote.to_string(), more),
            None => {
                *rest = behind;
                return Some(text);
            }
        }
    }
}

fn word<'a>(rest: &mut &'a str) -> &'a str {
    let text = rest.trim_start();
    let end = text.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after.trim_start();
    word
}

/// Error returned for text that isn't a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a condition on tags has the form \"name\" = 'value', with =, <>, <, <=, > or >=, joined by AND and OR")]
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
            assert_eq!(text.parse::<TagCondition>().unwrap().holds(&tags), expected, "{text}");
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
