//! The tokens of a filter.

use std::str::FromStr;

use uuid::Uuid;

use super::ComparisonOperator;
use crate::entity::datetime::DateTime;
use crate::entity::edm::EdmValue;
use crate::request::resource::quoted;

/// A token of a filter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FilterToken {
    Open,
    Close,
    And,
    Or,
    Not,
    Compare(ComparisonOperator),
    Property(Box<str>),
    Literal(EdmValue),
}

/// Reads the next token, skipping whitespace, and returns the rest. Returns `None` if there is no valid token.
pub(crate) fn next(text: &str) -> Option<(FilterToken, &str)> {
    let text = text.trim_start();
    if text.starts_with('\'') {
        let (value, rest) = quoted(text)?;
        return Some((FilterToken::Literal(EdmValue::String(value.into())), rest));
    }
    let parenthesis = [('(', FilterToken::Open), (')', FilterToken::Close)];
    if let Some((char, token)) = parenthesis
        .into_iter()
        .find(|(char, _)| text.starts_with(*char))
    {
        return Some((token, &text[char.len_utf8()..]));
    }
    let end = text
        .find(|char: char| char.is_whitespace() || matches!(char, '(' | ')' | '\''))
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if rest.starts_with('\'') {
        let (value, rest) = quoted(rest)?;
        return Some((FilterToken::Literal(typed(word, &value)?), rest));
    }
    self::word(word).map(|token| (token, rest))
}

/// Parses a literal with a type prefix.
fn typed(name: &str, text: &str) -> Option<EdmValue> {
    Some(match name.to_ascii_lowercase().as_str() {
        "datetime" => EdmValue::DateTime(DateTime::parse(text)?),
        "guid" => EdmValue::Guid(Uuid::try_parse(text).ok()?),
        "binary" | "x" => EdmValue::Binary(hex::decode(text).ok()?.into()),
        _ => return None,
    })
}

/// Parses a word: an operator, a literal or the name of a property.
fn word(word: &str) -> Option<FilterToken> {
    let lower = word.to_ascii_lowercase();
    Some(match lower.as_str() {
        "and" => FilterToken::And,
        "or" => FilterToken::Or,
        "not" => FilterToken::Not,
        "eq" => FilterToken::Compare(ComparisonOperator::Equal),
        "ne" => FilterToken::Compare(ComparisonOperator::NotEqual),
        "lt" => FilterToken::Compare(ComparisonOperator::Less),
        "le" => FilterToken::Compare(ComparisonOperator::LessOrEqual),
        "gt" => FilterToken::Compare(ComparisonOperator::Greater),
        "ge" => FilterToken::Compare(ComparisonOperator::GreaterOrEqual),
        "true" => FilterToken::Literal(EdmValue::Boolean(true)),
        "false" => FilterToken::Literal(EdmValue::Boolean(false)),
        _ if word.starts_with(|char: char| char.is_alphabetic() || char == '_') => {
            let inner = |char: char| char.is_alphanumeric() || char == '_';
            return word
                .chars()
                .all(inner)
                .then(|| FilterToken::Property(word.into()));
        }
        _ => return number(&lower).map(FilterToken::Literal),
    })
}

/// Parses a number in lower case. Without a suffix, an integer is an `Edm.Int32`, an `Edm.Int64` if it doesn't fit, and an
/// `Edm.Double` if it fits neither. `l` makes an `Edm.Int64`; `d`, a point or an exponent makes an `Edm.Double`.
fn number(word: &str) -> Option<EdmValue> {
    if let Some(digits) = word.strip_suffix('l') {
        return whole(digits).map(EdmValue::Int64);
    }
    if let Some(number) = whole::<i32>(word) {
        return Some(EdmValue::Int32(number));
    }
    if let Some(number) = whole(word) {
        return Some(EdmValue::Int64(number));
    }
    let digits = word.strip_suffix('d').unwrap_or(word);
    let inner = |char: char| char.is_ascii_digit() || matches!(char, '.' | '-' | '+' | 'e');
    let number = digits
        .parse()
        .ok()
        .filter(|number: &f64| digits.chars().all(inner) && number.is_finite());
    number.map(EdmValue::Double)
}

fn whole<T: FromStr>(digits: &str) -> Option<T> {
    digits.parse().ok()
}
