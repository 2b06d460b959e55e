//! A second evaluator, slow and simple, that shares no code with the first. Properties compare the two.

use http::{HeaderMap, Method};

use crate::table::Current;

/// Returns the verdict as written in the tables.
pub(crate) fn evaluate(method: &Method, headers: &HeaderMap, current: Option<&Current>) -> String {
    let read = ["GET", "HEAD"].contains(&method.as_str());
    let safe = read || method.as_str() == "QUERY";
    if ["CONNECT", "OPTIONS", "TRACE"].contains(&method.as_str()) {
        return "proceed".into();
    }
    let seconds = current
        .and_then(|current| current.last_modified)
        .map(ifmatch_core::date::HttpDate::unix);
    let tags: Vec<Vec<u8>> = current
        .iter()
        .flat_map(|c| &c.tags)
        .map(|tag| tag.as_bytes().to_vec())
        .collect();

    if let Some(list) = members(headers, "if-match") {
        let star = list == [b"*"];
        let hit = !garbled(&list)
            && list
                .iter()
                .any(|member| is_tag(member) && member[0] == b'"' && tags.contains(member));
        if current.is_none() || !(star || hit) {
            return "412 if-match".into();
        }
    } else if let Some(date) = date(headers, "if-unmodified-since") {
        let unmodified = seconds.map_or(safe, |seconds| seconds <= date);
        if !unmodified {
            return "412 if-unmodified-since".into();
        }
    }

    if let Some(list) = members(headers, "if-none-match") {
        let hit = if garbled(&list) {
            !safe
        } else if list == [b"*"] {
            current.is_some()
        } else {
            list.iter().any(|member| {
                is_tag(member) && tags.iter().any(|tag| opaque(tag) == opaque(member))
            })
        };
        return if hit && read {
            "304".into()
        } else if hit {
            "412 if-none-match".into()
        } else {
            "proceed".into()
        };
    }
    match (date(headers, "if-modified-since"), seconds) {
        (Some(date), Some(seconds)) if read && seconds <= date => "304".into(),
        _ => "proceed".into(),
    }
}

/// Returns `true` for a star with other members, or a list that is too long.
fn garbled(list: &[Vec<u8>]) -> bool {
    list.len() > 1_000 || (list.len() > 1 && list.contains(&b"*".to_vec()))
}

/// Returns the members of all field lines, including empty ones, byte by byte.
pub(crate) fn members(headers: &HeaderMap, name: &str) -> Option<Vec<Vec<u8>>> {
    if !headers.contains_key(name) {
        return None;
    }
    let mut members = Vec::new();
    for line in headers.get_all(name) {
        let (mut member, mut quotes) = (Vec::new(), 0);
        for byte in line.as_bytes() {
            if *byte == b',' && quotes % 2 == 0 {
                members.push(std::mem::take(&mut member));
            } else {
                quotes += usize::from(*byte == b'"');
                member.push(*byte);
            }
        }
        members.push(member);
    }
    Some(members.into_iter().map(|member| trim(&member)).collect())
}

fn trim(member: &[u8]) -> Vec<u8> {
    let text: String = member.iter().map(|byte| char::from(*byte)).collect();
    text.trim_matches([' ', '\t'])
        .chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect()
}

fn is_tag(member: &[u8]) -> bool {
    let quotes = member.split(|byte| *byte == b'"').count() - 1;
    let prefix = member.starts_with(b"\"") || member.starts_with(b"W/\"");
    let clean = member.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    quotes == 2 && prefix && member.ends_with(b"\"") && clean
}

fn opaque(tag: &[u8]) -> &[u8] {
    &tag[tag.iter().position(|byte| *byte == b'"').unwrap()..]
}

/// Returns the date if there is exactly one. Parsing is tested elsewhere.
fn date(headers: &HeaderMap, name: &str) -> Option<i64> {
    let lines: Vec<_> = headers.get_all(name).iter().collect();
    let [line] = lines.as_slice() else {
        return None;
    };
    ifmatch_core::date::HttpDate::parse(line.as_bytes()).map(ifmatch_core::date::HttpDate::unix)
}
