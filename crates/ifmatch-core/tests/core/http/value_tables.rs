//! The tables of values: tags, dates, ranges, digests and the header fields of a 304.

use http::HeaderName;
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::fields::not_modified::retain_304_headers;
use ifmatch_core::range::{Limits, Representation, Selection, if_range, requested};

use crate::table::{bytes, current, each_row, headers};

#[test]
fn comparison() {
    each_row("comparison.txt", 4, |row| {
        let [left, right] =
            [0, 1].map(|column| EntityTag::parse(&bytes(&row.columns[column])).unwrap());
        for (left, right) in [(&left, &right), (&right, &left)] {
            assert_eq!(
                left.strong_eq(right),
                row.columns[2] == "yes",
                "strong: {}",
                row.place
            );
            assert_eq!(
                left.weak_eq(right),
                row.columns[3] == "yes",
                "weak: {}",
                row.place
            );
        }
    });
}

#[test]
fn invalid_tags() {
    each_row("invalid_tags.txt", 1, |row| {
        assert!(
            EntityTag::parse(&bytes(&row.columns[0])).is_err(),
            "{}",
            row.place
        );
    });
}

#[test]
fn dates() {
    each_row("dates.txt", 3, |row| {
        let date = HttpDate::parse(&bytes(&row.columns[0]));
        let seconds = date.map_or("-".to_owned(), |date| date.unix().to_string());
        assert_eq!(seconds, row.columns[1], "{}", row.place);
        let text = date.map_or("-".to_owned(), |date| date.to_string());
        assert_eq!(text, row.columns[2], "{}", row.place);
    });
}

#[test]
fn ranges() {
    each_row("ranges.txt", 3, |row| {
        let len = row.columns[1].parse().unwrap();
        let found = match requested(&headers(&row.columns[0]), len, Limits::default()) {
            Selection::Whole => "whole".to_owned(),
            Selection::Unsatisfiable => "416".to_owned(),
            Selection::Parts(parts) => {
                let parts: Vec<_> = parts
                    .iter()
                    .map(|part| format!("{}-{}", part.start(), part.end()))
                    .collect();
                parts.join(" ")
            }
        };
        assert_eq!(found, row.columns[2], "{}", row.place);
    });
}

#[test]
fn conditional_ranges() {
    each_row("if_range.txt", 4, |row| {
        let current = current(&row.columns[1]).unwrap();
        let sent = Representation {
            tag: current.tags.first(),
            last_modified: current.last_modified,
            len: 1,
        };
        let now =
            Timestamp::from_micros(row.columns[2].parse::<u64>().unwrap() * 1_000_000 + 999_999);
        let found = match if_range(&headers(&row.columns[0]), &sent, now) {
            None => "absent",
            Some(true) => "true",
            Some(false) => "false",
        };
        assert_eq!(found, row.columns[3], "{}", row.place);
    });
}

#[test]
fn not_modified() {
    each_row("not_modified.txt", 2, |row| {
        let mut headers = headers(&row.columns[0]);
        retain_304_headers(&mut headers);
        let mut names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let found = if names.is_empty() {
            "-".to_owned()
        } else {
            names.join(" ")
        };
        assert_eq!(found, row.columns[1], "{}", row.place);
    });
}

#[test]
fn digests() {
    each_row("digests.txt", 2, |row| {
        let name = HeaderName::from_static("repr-digest");
        let found = match ContentHash::from_headers(&headers(&row.columns[0]), name) {
            Err(_) => "malformed",
            Ok(None) => "none",
            Ok(Some(hash)) if hash == ContentHash::of(b"hello") => "same",
            Ok(Some(_)) => "other",
        };
        assert_eq!(found, row.columns[1], "{}", row.place);
    });
}
