//! Signatures made by the SDKs, intact and tampered with.

use std::time::Duration;

use http::{HeaderName, Method, Request};
use serde_json::Value;

use super::*;

/// Requests of the Python and JavaScript SDKs as sent, and a few made by hand after the reference.
const VECTORS: &str = include_str!("../../tests/azure/data/signatures.json");

struct Vector {
    name: String,
    is_table: bool,
    head: Parts,
}

impl Vector {
    fn of(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().expect("text");
        let mut request = Request::builder().method(text("method")).uri(text("target"));
        for field in value["headers"].as_array().expect("fields") {
            request = request.header(field[0].as_str().expect("a name"), field[1].as_str().expect("a value"));
        }
        let head = request.body(()).expect("a request").into_parts().0;
        Self { name: text("name").to_owned(), is_table: text("service") == "table", head }
    }

    fn check(&self, head: &Parts) -> Result<(), AuthError> {
        self.check_at(head, self.date())
    }

    fn check_at(&self, head: &Parts, now: Timestamp) -> Result<(), AuthError> {
        let accounts = Accounts::development();
        let account = if self.is_table {
            authenticate_table(&accounts, head, now)
        } else {
            authenticate_blob(&accounts, head, now)
        };
        account.map(|found| assert_eq!(found.account.name(), ifmatch_blob::accounts::DEVELOPMENT_ACCOUNT))
    }

    fn date(&self) -> Timestamp {
        let date = self.head.headers.get("x-ms-date").or(self.head.headers.get("date")).expect("a date");
        let seconds = HttpDate::parse(date.as_bytes()).expect("a date").unix().cast_unsigned();
        Timestamp::from_micros(seconds * 1_000_000)
    }

    /// Returns `true` if the signature covers the header.
    fn signs(&self, name: &HeaderName) -> bool {
        let is_lite = self.head.headers[AUTHORIZATION].as_bytes().starts_with(b"SharedKeyLite");
        let is_date = name == "x-ms-date" || (name == "date" && !self.head.headers.contains_key("x-ms-date"));
        let is_content = name == "content-type" || name == "content-md5";
        match (self.is_table, is_lite) {
            (true, true) => is_date,
            (true, false) => is_date || is_content,
            (false, true) => is_date || is_content || name.as_str().starts_with("x-ms-"),
            (false, false) => true,
        }
    }
}

fn vectors() -> Vec<Vector> {
    let vectors: Value = serde_json::from_str(VECTORS).expect("JSON");
    vectors.as_array().expect("a list").iter().map(Vector::of).collect()
}

#[test]
fn accepts_the_signatures_of_the_sdks() {
    let vectors = vectors();
    assert!(vectors.len() > 30);
    for vector in vectors {
        assert_eq!(vector.check(&vector.head), Ok(()), "{}", vector.name);
    }
}

#[test]
fn rejects_changes_to_signed_parts() {
    for vector in vectors() {
        let name = &vector.name;
        let mut changed = vector.head.clone();
        changed.uri = format!("{}x", vector.head.uri.path()).parse().expect("a path");
        assert_eq!(vector.check(&changed), Err(AuthError::Mismatch), "{name}: the path");
        for field in vector.head.headers.keys().filter(|field| *field != AUTHORIZATION) {
            let mut changed = vector.head.clone();
            changed.headers.insert(field, "Sat, 21 Nov 2026 00:00:01 GMT".parse().expect("a value"));
            let expected = if vector.signs(field) { Err(AuthError::Mismatch) } else { Ok(()) };
            assert_eq!(vector.check(&changed), expected, "{name}: {field}");
        }
        let lite_table = vector.is_table && vector.head.headers[AUTHORIZATION].as_bytes().starts_with(b"SharedKeyLite");
        let mut changed = vector.head.clone();
        changed.method = Method::OPTIONS;
        let expected = if lite_table { Ok(()) } else { Err(AuthError::Mismatch) };
        assert_eq!(vector.check(&changed), expected, "{name}: the method");
    }
}

#[test]
fn the_time_limit_is_inclusive() {
    for vector in vectors() {
        let (date, head) = (vector.date(), &vector.head);
        let earlier = |duration: Duration| {
            Timestamp::from_micros(date.micros() - u64::try_from(duration.as_micros()).expect("short"))
        };
        let second = Duration::from_secs(1);
        assert_eq!(vector.check_at(head, date.saturating_add(MAX_SKEW)), Ok(()), "{}", vector.name);
        assert_eq!(vector.check_at(head, date.saturating_add(MAX_SKEW + second)), Err(AuthError::Skewed));
        assert_eq!(vector.check_at(head, earlier(MAX_SKEW)), Ok(()));
        assert_eq!(vector.check_at(head, earlier(MAX_SKEW + second)), Err(AuthError::Skewed));
    }
}

/// Builds a request with this signature, and without an account if `None`.
fn request(target: &str, authorization: &str, date: Option<&str>) -> Parts {
    let mut request = Request::get(target).header("x-ms-version", "2021-12-02").header(AUTHORIZATION, authorization);
    if let Some(date) = date {
        request = request.header("x-ms-date", date);
    }
    request.body(()).expect("a request").into_parts().0
}

/// Builds the request, signed with the development account's key over `covered`.
fn signed(target: &str, covered: &str) -> Parts {
    let account = ifmatch_blob::accounts::DEVELOPMENT_ACCOUNT;
    let date = Some("Sat, 21 Nov 2026 00:00:00 GMT");
    let text = shared_key::blob(&request(covered, "", date), account).expect("a text");
    let accounts = Accounts::development();
    let signature = accounts.get(account).expect("the account").keys()[0].sign(&text);
    request(target, &format!("SharedKey {account}:{signature}"), date)
}

fn authenticated(head: &Parts) -> Result<(), AuthError> {
    let date = HttpDate::parse(b"Sat, 21 Nov 2026 00:00:00 GMT").expect("a date").unix().cast_unsigned();
    authenticate_blob(&Accounts::development(), head, Timestamp::from_micros(date * 1_000_000)).map(|_| ())
}

#[test]
fn a_signature_over_a_query_covers_no_other_query() {
    const QUERY: &str = "/devstoreaccount1/c?comp=list&delimiter=a:b&prefix=pub";
    assert_eq!(authenticated(&signed(QUERY, QUERY)), Ok(()));
    for altered in [
        "/devstoreaccount1/c?comp=list&delimiter=a:b%0Aprefix:pub",
        "/devstoreaccount1/c?comp=list%0adelimiter:a:b%0aprefix:pub",
        "/devstoreaccount1/c?comp=list&delimiter%3Aa=b&prefix=pub",
        "/devstoreaccount1/c?comp=list&delimiter:a=b&prefix=pub",
        "/devstoreaccount1/c?comp=list&delimiter=a:b&prefix=pub%0D",
        "/devstoreaccount1/c?comp=list&delimiter=a:b&prefix=pub%7F",
    ] {
        assert_eq!(authenticated(&signed(altered, QUERY)), Err(AuthError::Mismatch), "{altered}");
    }
}

#[test]
fn rejections_do_not_reveal_accounts() {
    let dates = [None, Some("Thu, 01 Jan 2015 00:00:00 GMT"), Some("Sat, 21 Nov 2026 00:00:00 GMT")];
    for (scheme, signature) in [
        ("SharedKey", "!!!!"),
        ("SharedKey", ""),
        ("SharedKey", "AAAA"),
        ("SharedKeyLite", "!!!!"),
        ("SharedKeyLite", "AAAA"),
    ] {
        for date in dates {
            let refused = |account: &str| {
                let authorization = format!("{scheme} {account}:{signature}");
                authenticated(&request(&format!("/{account}/c"), &authorization, date)).expect_err("a refusal")
            };
            assert_eq!(refused("devstoreaccount1"), refused("unknown"), "{scheme} {signature} {date:?}");
        }
    }
}

#[test]
fn the_decoy_key_signs_nothing() {
    let decoy = decoy();
    let signature = STANDARD.decode(decoy.sign("text")).expect("base64");
    assert!(!is_signed(&[], "text", &signature));
    assert!(is_signed(&[decoy], "text", &signature));
}
