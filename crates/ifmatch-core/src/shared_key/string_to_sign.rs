//! The string to sign.
//!
//! Every function returns `None` if a header or parameter is ambiguous or not text, so no signature covers it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;

use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, DATE, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

use super::{X_MS_DATE, header_order};

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// Prefix of Azure's own headers.
const PREFIX: &str = "x-ms-";
/// Enough for the string of nearly all requests.
const USUAL_LENGTH: usize = 640;

/// Returns the text that `SharedKey` signs for a request to the blob service.
///
/// Returns `None` if a field or parameter is ambiguous or not text.
pub fn blob(head: &Parts, account: &str) -> Option<String> {
    let standard = [
        CONTENT_ENCODING,
        CONTENT_LANGUAGE,
        CONTENT_LENGTH,
        CONTENT_MD5,
        CONTENT_TYPE,
        DATE,
        IF_MODIFIED_SINCE,
        IF_MATCH,
        IF_NONE_MATCH,
        IF_UNMODIFIED_SINCE,
        RANGE,
    ];
    let mut text = String::with_capacity(USUAL_LENGTH);
    text.extend([head.method.as_str(), "\n"]);
    for (name, value) in standard.iter().zip(values(&head.headers, &standard)?) {
        let value = match value {
            value if name == CONTENT_LENGTH && value == "0" => Cow::default(),
            _ if name == DATE && head.headers.contains_key(X_MS_DATE) => Cow::default(),
            value => value,
        };
        text.extend([&value, "\n"]);
    }
    push_own_fields(&mut text, &head.headers)?;
    push_resource(&mut text, head, account);
    push_parameters(&mut text, head)?;
    Some(text)
}

/// Returns the text that `SharedKeyLite` signs for a request to the blob service.
///
/// Returns `None` if a field or parameter is ambiguous or not text.
pub fn blob_lite(head: &Parts, account: &str) -> Option<String> {
    let date = if head.headers.contains_key(X_MS_DATE) {
        Cow::default()
    } else {
        value(&head.headers, &DATE)?
    };
    let (md5, media_type) = (
        value(&head.headers, &CONTENT_MD5)?,
        value(&head.headers, &CONTENT_TYPE)?,
    );
    let mut text = format!("{}\n{md5}\n{media_type}\n{date}\n", head.method);
    push_own_fields(&mut text, &head.headers)?;
    push_resource(&mut text, head, account);
    push_comp(&mut text, head)?;
    Some(text)
}

/// Returns the text that `SharedKey` signs for a request to the table service.
///
/// Returns `None` if a field or parameter is ambiguous or not text.
pub fn table(head: &Parts, account: &str) -> Option<String> {
    let (md5, media_type) = (
        value(&head.headers, &CONTENT_MD5)?,
        value(&head.headers, &CONTENT_TYPE)?,
    );
    let mut text = format!(
        "{}\n{md5}\n{media_type}\n{}\n",
        head.method,
        any_date(&head.headers)?
    );
    push_resource(&mut text, head, account);
    push_comp(&mut text, head)?;
    Some(text)
}

/// Returns the text that `SharedKeyLite` signs for a request to the table service.
///
/// Returns `None` if a field or parameter is ambiguous or not text.
pub fn table_lite(head: &Parts, account: &str) -> Option<String> {
    let mut text = format!("{}\n", any_date(&head.headers)?);
    push_resource(&mut text, head, account);
    push_comp(&mut text, head)?;
    Some(text)
}

/// Returns the values of headers, lines joined by commas, empty if absent. Passes over all headers once.
fn values<'a, const N: usize>(
    headers: &'a HeaderMap,
    names: &[HeaderName; N],
) -> Option<[Cow<'a, str>; N]> {
    let mut values = [const { None }; N];
    for (name, line) in headers {
        if let Some(at) = names.iter().position(|other| other == name) {
            add(&mut values[at], line.to_str().ok()?);
        }
    }
    Some(values.map(Option::unwrap_or_default))
}

/// Appends a line to the value of a header.
fn add<'a>(value: &mut Option<Cow<'a, str>>, line: &'a str) {
    match value {
        Some(value) => value.to_mut().extend([",", line]),
        None => *value = Some(line.into()),
    }
}

fn value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    let [value] = values(headers, std::array::from_ref(name))?;
    Some(value)
}

fn any_date(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let name = if headers.contains_key(X_MS_DATE) {
        X_MS_DATE
    } else {
        DATE
    };
    value(headers, &name)
}

/// Appends the `x-ms-*` headers in the service's order, one line each.
fn push_own_fields(text: &mut String, headers: &HeaderMap) -> Option<()> {
    let mut fields: Vec<(&str, Option<Cow<'_, str>>)> = Vec::with_capacity(headers.keys_len());
    // The lines of a header are adjacent.
    for (name, line) in headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with(PREFIX))
    {
        if fields.last().is_none_or(|(last, _)| *last != name.as_str()) {
            fields.push((name.as_str(), None));
        }
        if let Some((_, value)) = fields.last_mut() {
            add(value, line.to_str().ok()?);
        }
    }
    fields.sort_unstable_by(
        |(one, _), (other, _)| match header_order::compare(one, other) {
            Ordering::Equal => one.cmp(other),
            order => order,
        },
    );
    for (name, value) in fields {
        text.extend([name, ":", value.unwrap_or_default().trim(), "\n"]);
    }
    Some(())
}

/// Appends the account and the path, as sent. The path begins with the account, so the account occurs twice.
fn push_resource(text: &mut String, head: &Parts, account: &str) {
    text.extend(["/", account, head.uri.path()]);
}

/// Appends all parameters: names in lower case and sorted, values sorted.
fn push_parameters(text: &mut String, head: &Parts) -> Option<()> {
    let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for parameter in head
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|parameter| !parameter.is_empty())
    {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let name = decode(name)
            .filter(|name| !name.contains(':'))?
            .to_ascii_lowercase();
        parameters.entry(name).or_default().push(decode(value)?);
    }
    for (name, mut values) in parameters {
        values.sort();
        // Writing to a string can't fail.
        let _ = write!(text, "\n{name}:{}", values.join(","));
    }
    Some(())
}

/// Appends `comp`, the only parameter that the short forms cover, in any spelling of its name.
fn push_comp(text: &mut String, head: &Parts) -> Option<()> {
    for parameter in head.uri.query().unwrap_or_default().split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if decode(name)?.eq_ignore_ascii_case("comp") {
            // Writing to a string can't fail.
            let _ = write!(text, "?comp={}", decode(value)?);
            break;
        }
    }
    Some(())
}

/// Decodes a name or value, in which a plus is a space, as in a form. Rejects malformed escapes, and control characters:
/// a line break would let a value pass for another parameter.
fn decode(text: &str) -> Option<String> {
    let is_hex = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
    if !text
        .match_indices('%')
        .all(|(at, _)| is_hex(at + 1) && is_hex(at + 2))
    {
        return None;
    }
    let text = text.replace('+', " ");
    let text = percent_decode_str(&text).decode_utf8().ok()?;
    (!text.contains(char::is_control)).then(|| text.into_owned())
}
