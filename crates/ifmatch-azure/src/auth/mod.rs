//! Authentication by `SharedKey`, `SharedKeyLite` and [shared access signatures](shared_access), for blobs and tables.
//!
//! For blobs, `SharedKey` covers everything that determines what a request does: method, path, query, the `x-ms-*`
//! headers and the standard ones. `SharedKeyLite` and both forms for tables cover less, as Azure defines them: no
//! conditions and hardly any parameters, and `SharedKeyLite` for tables not even the method. None covers the body. For
//! 15 minutes, a signed request can be replayed, and the parts that the signature doesn't cover can be changed. TLS
//! prevents both.

pub(crate) mod access_policy;
pub mod shared_access;

use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, DATE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Request, StatusCode, Uri};
use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::dialect::Peer;
use ifmatch_blob::name::ContainerName;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::shared_key::{self, Key, X_MS_DATE};
use thiserror::Error;

use crate::error::AzureError;
use access_policy::AccessPolicy;
use shared_access::{SharedAccessClaim, SignedService};

pub use shared_access::{ResourceLevel, SharedAccess, SharedAccessError};

/// The address of the blob to copy.
pub(crate) const COPY_SOURCE: HeaderName = HeaderName::from_static("x-ms-copy-source");
/// Maximum distance between a request's date and now.
const MAX_SKEW: Duration = Duration::from_mins(15);
/// Schemes of `Authorization`.
const SHARED_KEY: &str = "SharedKey";
const SHARED_KEY_LITE: &str = "SharedKeyLite";

/// An authenticated request: the account that it is for, and what it may do there.
#[derive(Clone, Debug)]
pub struct Authenticated<'a> {
    /// The account.
    pub account: &'a Account,
    /// The request's rights.
    pub grant: AccessGrant,
}

/// A request's rights.
#[derive(Clone, Debug)]
pub enum AccessGrant {
    /// Everything: it is signed with the account's key.
    Everything,
    /// The rights that a shared access signature grants.
    SharedAccess(SharedAccess),
}

/// Returns the account that signed a request to the Blob service, and what the request may do. `policy` is the stored access policy that
/// its signature names.
///
/// # Errors
/// The signature is missing, wrong or too old, or the path names another account.
pub(crate) fn authenticate_blob<'a>(
    accounts: &'a Accounts,
    head: &Parts,
    now: Timestamp,
    policy: Option<&AccessPolicy>,
) -> Result<Authenticated<'a>, AuthError> {
    if has_shared_access(head) {
        return authenticate_shared(accounts, head, SignedService::Blob, now, policy);
    }
    authenticate(accounts, head, now, |claim| claim.blob_text(head))
}

/// Returns the container and the id of the stored access policy that limits a request to the Blob service. `None` if its signature names
/// none, or is wrong.
pub(crate) fn policy_named(accounts: &Accounts, head: &Parts) -> Option<(ContainerName, String)> {
    if !has_shared_access(head) {
        return None;
    }
    let claim = SharedAccessClaim::parse(head, SignedService::Blob).ok()?;
    let (id, container) = claim.policy()?;
    let account = verify_shared(accounts, head, &claim).ok()?;
    Some((accounts.container(account, &container)?, id))
}

/// Returns the head of a read of a copy's source as the request's client.
pub(crate) fn source_of(request: &Parts) -> Option<Parts> {
    let source = request.headers.get(COPY_SOURCE)?.to_str().ok()?;
    Some(source_head(request, &source.parse().ok()?))
}

/// Builds the head of a read of a copy's source.
fn source_head(request: &Parts, source: &Uri) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.uri = source.clone();
    head.extensions = request.extensions.clone();
    head
}

/// Returns what a part of a batch may do. `sent` is its head as it was signed with a key: its path may lack the account's name.
///
/// # Errors
/// The signature is missing, wrong, too old, or another account's.
pub(crate) fn authenticate_part(
    accounts: &Accounts,
    account: &Account,
    sent: &Parts,
    head: &Parts,
    now: Timestamp,
    policy: Option<&AccessPolicy>,
) -> Result<AccessGrant, AuthError> {
    let is_own = |other: &Account| other.name() == account.name();
    let authenticated = if has_shared_access(head) {
        authenticate_shared(accounts, head, SignedService::Blob, now, policy)?
    } else {
        authenticate_for(accounts, sent, now, is_own, |claim| claim.blob_text(sent))?
    };
    if is_own(authenticated.account) {
        Ok(authenticated.grant)
    } else {
        Err(AuthError::Mismatch)
    }
}

/// Verifies that the signature in the URL of a copy's source permits reading it.
///
/// # Errors
/// No such signature, or it doesn't permit the request.
pub(crate) fn authenticate_source(
    accounts: &Accounts,
    request: &Parts,
    source: &Uri,
    now: Timestamp,
    policy: Option<&AccessPolicy>,
    reads_tags: bool,
) -> Result<(), AuthError> {
    let head = source_head(request, source);
    if !has_shared_access(&head) {
        return Err(AuthError::Missing);
    }
    match authenticate_shared(accounts, &head, SignedService::Blob, now, policy)?.grant {
        AccessGrant::SharedAccess(access) => {
            access.permit(ResourceLevel::Object, "r")?;
            if reads_tags {
                Ok(access.permit(ResourceLevel::Object, "t")?)
            } else {
                Ok(())
            }
        }
        AccessGrant::Everything => Ok(()),
    }
}

/// Returns the account that signed a request to the Table service, and what the request may do.
///
/// # Errors
/// The signature is missing, wrong or too old, or the path names another account.
pub fn authenticate_table<'a>(
    accounts: &'a Accounts,
    head: &Parts,
    now: Timestamp,
) -> Result<Authenticated<'a>, AuthError> {
    if has_shared_access(head) {
        return authenticate_shared(accounts, head, SignedService::Table, now, None);
    }
    authenticate(accounts, head, now, |claim| match claim.scheme {
        SignatureScheme::Full => shared_key::table(head, claim.account),
        SignatureScheme::Lite => shared_key::table_lite(head, claim.account),
    })
}

/// The reason why a request couldn't be authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AuthError {
    /// `Authorization` is missing.
    #[error("the request isn't signed. Sign it with the account's key (SharedKey)")]
    Missing,
    /// `Authorization` is repeated or malformed, or its scheme is unknown.
    #[error(
        "Authorization is malformed. Write 'SharedKey account:signature' or 'SharedKeyLite account:signature'"
    )]
    Malformed,
    /// The shared access signature doesn't allow the request.
    #[error("{0}")]
    SharedAccess(#[from] SharedAccessError),
    /// The date is missing, or too far from now.
    #[error(
        "the request's date (x-ms-date, or else Date) is missing, or differs from the server's by more than 15 minutes"
    )]
    Skewed,
    /// The account is unknown or not the path's, or the signature is wrong.
    #[error(
        "the signature doesn't match the account's key. Check the account, the key, and the string to sign"
    )]
    Mismatch,
}

impl AuthError {
    /// Returns Azure's error code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Missing => "NoAuthenticationInformation",
            Self::Malformed => "InvalidAuthenticationInfo",
            Self::Skewed | Self::Mismatch => "AuthenticationFailed",
            Self::SharedAccess(error) => error.code(),
        }
    }

    /// Returns the response's status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Missing => StatusCode::UNAUTHORIZED,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::SharedAccess(_) | Self::Skewed | Self::Mismatch => StatusCode::FORBIDDEN,
        }
    }
}

/// The scheme of `Authorization`.
#[derive(Clone, Copy)]
enum SignatureScheme {
    Full,
    Lite,
}

/// The signature that a request claims to carry.
#[derive(Clone, Copy)]
struct SignatureClaim<'a> {
    scheme: SignatureScheme,
    account: &'a str,
    signature: &'a str,
}

impl SignatureClaim<'_> {
    /// Returns the text to sign for a request to the Blob service.
    fn blob_text(&self, head: &Parts) -> Option<String> {
        match self.scheme {
            SignatureScheme::Full => shared_key::blob(head, self.account),
            SignatureScheme::Lite => shared_key::blob_lite(head, self.account),
        }
    }
}

/// Verifies the signature with the key of the account that the path names.
fn authenticate<'a>(
    accounts: &'a Accounts,
    head: &Parts,
    now: Timestamp,
    signed: impl FnOnce(SignatureClaim<'_>) -> Option<String>,
) -> Result<Authenticated<'a>, AuthError> {
    authenticate_for(
        accounts,
        head,
        now,
        |account| addresses(head.uri.path(), account),
        signed,
    )
}

/// Verifies the signature. Its account must be one that may make the request.
fn authenticate_for<'a>(
    accounts: &'a Accounts,
    head: &Parts,
    now: Timestamp,
    may: impl FnOnce(&Account) -> bool,
    signed: impl FnOnce(SignatureClaim<'_>) -> Option<String>,
) -> Result<Authenticated<'a>, AuthError> {
    let claim = claim(head)?;
    let signature = STANDARD
        .decode(claim.signature)
        .map_err(|_| AuthError::Malformed)?;
    let text = signed(claim).ok_or(AuthError::Mismatch)?;
    let account = accounts.get(claim.account).filter(|account| may(account));
    let is_signed = is_signed(account.map_or(&[], Account::keys), &text, &signature);
    let account = account.filter(|_| is_signed).ok_or(AuthError::Mismatch)?;
    // The date is checked last, so only signed requests learn about the server's clock.
    if in_time(&head.headers, now) {
        Ok(Authenticated {
            account,
            grant: AccessGrant::Everything,
        })
    } else {
        Err(AuthError::Skewed)
    }
}

/// Returns what the shared access signature in the query grants to the request.
fn authenticate_shared<'a>(
    accounts: &'a Accounts,
    head: &Parts,
    service: SignedService,
    now: Timestamp,
    policy: Option<&AccessPolicy>,
) -> Result<Authenticated<'a>, AuthError> {
    let claim = SharedAccessClaim::parse(head, service)?;
    let account = verify_shared(accounts, head, &claim)?;
    // Limits are checked last, so only the holder of a signature learns about them.
    let grant = claim.grant(service, head.extensions.get::<Peer>().copied(), now, policy)?;
    Ok(Authenticated {
        account,
        grant: AccessGrant::SharedAccess(grant),
    })
}

/// Verifies the signature, and returns its account.
fn verify_shared<'a>(
    accounts: &'a Accounts,
    head: &Parts,
    claim: &SharedAccessClaim,
) -> Result<&'a Account, AuthError> {
    let signature = claim
        .signature()
        .and_then(|text| STANDARD.decode(text).ok())
        .ok_or(AuthError::Mismatch)?;
    let name = head.uri.path().split('/').nth(1).unwrap_or_default();
    let account = accounts
        .get(name)
        .filter(|account| addresses(head.uri.path(), account));
    let is_signed = is_signed(
        account.map_or(&[], Account::keys),
        &claim.text(name),
        &signature,
    );
    account.filter(|_| is_signed).ok_or(AuthError::Mismatch)
}

/// Parses `Authorization`.
fn claim(head: &Parts) -> Result<SignatureClaim<'_>, AuthError> {
    let mut lines = head.headers.get_all(AUTHORIZATION).iter();
    let line = match (lines.next(), lines.next()) {
        (Some(line), None) => line.to_str().map_err(|_| AuthError::Malformed)?,
        (Some(_), Some(_)) => return Err(AuthError::Malformed),
        (None, _) => return Err(AuthError::Missing),
    };
    let (scheme, credentials) = line.split_once(' ').ok_or(AuthError::Malformed)?;
    let scheme = match scheme {
        _ if scheme.eq_ignore_ascii_case(SHARED_KEY) => SignatureScheme::Full,
        _ if scheme.eq_ignore_ascii_case(SHARED_KEY_LITE) => SignatureScheme::Lite,
        _ => return Err(AuthError::Malformed),
    };
    let (account, signature) = credentials
        .trim()
        .split_once(':')
        .ok_or(AuthError::Malformed)?;
    Ok(SignatureClaim {
        scheme,
        account,
        signature,
    })
}

/// Returns `true` if the request is to be authenticated by its query. `Authorization` takes precedence: the query's signature is then
/// ignored.
fn has_shared_access(head: &Parts) -> bool {
    !head.headers.contains_key(AUTHORIZATION) && shared_access::is_in(head.uri.query())
}

/// Returns `true` if the path begins with the account's name: a key is valid only for its own account.
fn addresses(path: &str, account: &Account) -> bool {
    let inner = path
        .strip_prefix('/')
        .and_then(|path| path.strip_prefix(account.name()));
    inner.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `true` if one of the keys signed the text. Does the same work for any number of keys, including zero, so
/// that the time of a rejection doesn't reveal which accounts exist.
fn is_signed(keys: &[Key], text: &str, signature: &[u8]) -> bool {
    static DECOY: LazyLock<Key> = LazyLock::new(decoy);
    (0..Account::MAX_KEYS).any(|at| {
        let key = keys.get(at).unwrap_or(&*DECOY);
        key.is_signature(text, signature) && at < keys.len()
    })
}

#[expect(clippy::expect_used, reason = "the text is base64")]
fn decoy() -> Key {
    Key::from_base64("ZGVjb3k=").expect("base64")
}

/// Returns `true` if the request's date is close enough to now.
fn in_time(headers: &HeaderMap, now: Timestamp) -> bool {
    let mut lines = headers.get_all(X_MS_DATE).iter();
    let date = match (lines.next(), lines.next()) {
        (None, _) => HttpDate::from_headers(headers, DATE),
        (Some(line), None) => HttpDate::parse(line.as_bytes()),
        (Some(_), Some(_)) => None,
    };
    let seconds = date.and_then(|date| u64::try_from(date.unix()).ok());
    let date = seconds.map(|seconds| Timestamp::from_micros(seconds.saturating_mul(1_000_000)));
    date.is_some_and(|date| date.until(now) <= MAX_SKEW && now.until(date) <= MAX_SKEW)
}

impl From<AuthError> for AzureError {
    fn from(error: AuthError) -> Self {
        Self::new(error.status(), error.code(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
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
            let mut request = Request::builder()
                .method(text("method"))
                .uri(text("target"));
            for field in value["headers"].as_array().expect("fields") {
                request = request.header(
                    field[0].as_str().expect("a name"),
                    field[1].as_str().expect("a value"),
                );
            }
            let head = request.body(()).expect("a request").into_parts().0;
            Self {
                name: text("name").to_owned(),
                is_table: text("service") == "table",
                head,
            }
        }

        fn check(&self, head: &Parts) -> Result<(), AuthError> {
            self.check_at(head, self.date())
        }

        fn check_at(&self, head: &Parts, now: Timestamp) -> Result<(), AuthError> {
            let accounts = Accounts::development();
            let account = if self.is_table {
                authenticate_table(&accounts, head, now)
            } else {
                authenticate_blob(&accounts, head, now, None)
            };
            account.map(|found| {
                assert_eq!(
                    found.account.name(),
                    ifmatch_blob::accounts::DEVELOPMENT_ACCOUNT
                );
            })
        }

        fn date(&self) -> Timestamp {
            let date = self
                .head
                .headers
                .get("x-ms-date")
                .or(self.head.headers.get("date"))
                .expect("a date");
            let seconds = HttpDate::parse(date.as_bytes())
                .expect("a date")
                .unix()
                .cast_unsigned();
            Timestamp::from_micros(seconds * 1_000_000)
        }

        /// Returns `true` if the signature covers the header.
        fn signs(&self, name: &HeaderName) -> bool {
            let is_lite = self.head.headers[AUTHORIZATION]
                .as_bytes()
                .starts_with(b"SharedKeyLite");
            let is_date = name == "x-ms-date"
                || (name == "date" && !self.head.headers.contains_key("x-ms-date"));
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
        vectors
            .as_array()
            .expect("a list")
            .iter()
            .map(Vector::of)
            .collect()
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
            changed.uri = format!("{}x", vector.head.uri.path())
                .parse()
                .expect("a path");
            assert_eq!(
                vector.check(&changed),
                Err(AuthError::Mismatch),
                "{name}: the path"
            );
            for field in vector
                .head
                .headers
                .keys()
                .filter(|field| *field != AUTHORIZATION)
            {
                let mut changed = vector.head.clone();
                changed.headers.insert(
                    field,
                    "Sat, 21 Nov 2026 00:00:01 GMT".parse().expect("a value"),
                );
                let expected = if vector.signs(field) {
                    Err(AuthError::Mismatch)
                } else {
                    Ok(())
                };
                assert_eq!(vector.check(&changed), expected, "{name}: {field}");
            }
            let lite_table = vector.is_table
                && vector.head.headers[AUTHORIZATION]
                    .as_bytes()
                    .starts_with(b"SharedKeyLite");
            let mut changed = vector.head.clone();
            changed.method = Method::OPTIONS;
            let expected = if lite_table {
                Ok(())
            } else {
                Err(AuthError::Mismatch)
            };
            assert_eq!(vector.check(&changed), expected, "{name}: the method");
        }
    }

    #[test]
    fn the_time_limit_is_inclusive() {
        for vector in vectors() {
            let (date, head) = (vector.date(), &vector.head);
            let earlier = |duration: Duration| {
                Timestamp::from_micros(
                    date.micros() - u64::try_from(duration.as_micros()).expect("short"),
                )
            };
            let second = Duration::from_secs(1);
            assert_eq!(
                vector.check_at(head, date.saturating_add(MAX_SKEW)),
                Ok(()),
                "{}",
                vector.name
            );
            assert_eq!(
                vector.check_at(head, date.saturating_add(MAX_SKEW + second)),
                Err(AuthError::Skewed)
            );
            assert_eq!(vector.check_at(head, earlier(MAX_SKEW)), Ok(()));
            assert_eq!(
                vector.check_at(head, earlier(MAX_SKEW + second)),
                Err(AuthError::Skewed)
            );
        }
    }

    /// Builds a request with this signature and date.
    fn request(target: &str, authorization: &str, date: Option<&str>) -> Parts {
        let mut request = Request::get(target)
            .header("x-ms-version", "2021-12-02")
            .header(AUTHORIZATION, authorization);
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
        let date = HttpDate::parse(b"Sat, 21 Nov 2026 00:00:00 GMT")
            .expect("a date")
            .unix()
            .cast_unsigned();
        authenticate_blob(
            &Accounts::development(),
            head,
            Timestamp::from_micros(date * 1_000_000),
            None,
        )
        .map(|_| ())
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
            assert_eq!(
                authenticated(&signed(altered, QUERY)),
                Err(AuthError::Mismatch),
                "{altered}"
            );
        }
    }

    #[test]
    fn rejections_do_not_reveal_accounts() {
        let dates = [
            None,
            Some("Thu, 01 Jan 2015 00:00:00 GMT"),
            Some("Sat, 21 Nov 2026 00:00:00 GMT"),
        ];
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
                    authenticated(&request(&format!("/{account}/c"), &authorization, date))
                        .expect_err("a refusal")
                };
                assert_eq!(
                    refused("devstoreaccount1"),
                    refused("unknown"),
                    "{scheme} {signature} {date:?}"
                );
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
}
