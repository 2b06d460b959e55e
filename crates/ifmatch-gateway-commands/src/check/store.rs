//! Checks of an object store, by the requests that the library of clients makes: create an absent object, and replace a
//! version.

use std::cell::RefCell;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Response, StatusCode};
use ifmatch_client::{Backend, Error as ClientError, ErrorKind, Put, Read, Version, When};
use ifmatch_gateway_config::error::Error;
use ifmatch_runtime::nonce;
use tokio::time::timeout;

use super::judge::{CheckFinding, CheckVerdict, ClientRisk};
use super::races::{ROUNDS, RaceKind, RaceOutcome, WRITERS, content, judged, outcome};
use super::site::{PATIENCE, SeenResource};
use super::tags::WRITES;
use crate::store_url::ObjectPlace;

/// The objects of a check.
struct CheckedObjects {
    place: ObjectPlace,
    /// Distinguishes the objects of this check from others.
    random: u64,
    /// The paths of the objects so far.
    keys: RefCell<Vec<String>>,
}

/// The content and the version of an object, or `None` if it doesn't exist.
type ObjectState = Option<(Bytes, Version)>;

/// Checks a store, and deletes the objects of the check.
///
/// # Errors
/// Fails if the store doesn't respond, or can't store anything.
pub(super) async fn check(place: ObjectPlace) -> Result<Vec<CheckFinding>, Error> {
    let random = nonce().map_err(|error| Error::runtime(error.to_string()))?;
    let objects = CheckedObjects {
        place,
        random,
        keys: RefCell::default(),
    };
    let findings = objects.findings().await;
    // In any case, even after an error.
    let cleared = objects.clear().await;
    let findings = findings?;
    cleared.map(|()| findings)
}

impl CheckedObjects {
    /// Runs all checks.
    async fn findings(&self) -> Result<Vec<CheckFinding>, Error> {
        let key = self.key();
        // Without a conditional creation, nothing can be written.
        let created = self.put(&key, 0, When::Absent).await;
        created.map_err(|error| Error::runtime(format!("the store rejected {key}: {error}")))?;
        let Some((_, first)) = self.state(&key).await? else {
            return Err(Error::runtime(format!(
                "the store lost {key} right after it was created"
            )));
        };
        let mut findings = self.replacements(&key, &first).await?;
        findings.push(
            self.rejects(
                "a creation is rejected if the object exists",
                "13.1.2",
                &key,
                When::Absent,
            )
            .await?,
        );
        let old = When::Is(first);
        findings.push(
            self.rejects(
                "a replacement of an old version is rejected",
                "13.1.1",
                &key,
                old.clone(),
            )
            .await?,
        );
        let absent = self.key();
        findings.push(
            self.rejects(
                "a replacement of an absent object is rejected",
                "13.1.1",
                &absent,
                old,
            )
            .await?,
        );
        for kind in [RaceKind::Create, RaceKind::Replace] {
            let mut outcomes = Vec::new();
            for _ in 0..ROUNDS {
                outcomes.push(self.race(kind).await?);
            }
            let (verdict, detail) = judged(&outcomes);
            let (section, name) = kind.check();
            let risk = ClientRisk::Lost;
            findings.push(CheckFinding::new(section, name, risk, verdict, detail));
        }
        Ok(findings)
    }

    /// Replaces the current version several times.
    async fn replacements(&self, key: &str, first: &Version) -> Result<Vec<CheckFinding>, Error> {
        let (mut versions, mut told, mut wrong) = (vec![first.clone()], 0, 0);
        let mut failed = None;
        for number in 1..=WRITES {
            let Some(current) = versions.last().cloned() else {
                break;
            };
            let written = match self.put(key, number, When::Is(current)).await {
                Ok(written) => written,
                Err(error) => {
                    failed = Some(error.to_string());
                    break;
                }
            };
            let Some((_, read)) = self.state(key).await? else {
                break;
            };
            told += usize::from(written.is_some());
            wrong += usize::from(written.is_some_and(|written| written != read));
            versions.push(read);
        }
        let count = versions.len();
        let is_done = failed.is_none();
        let detail = failed.unwrap_or_else(|| format!("{WRITES} of {WRITES}"));
        let name = "a replacement of the current version succeeds";
        let mut findings = vec![CheckFinding::new(
            "13.1.1",
            name,
            ClientRisk::Unusable,
            CheckVerdict::safe_if(is_done),
            detail,
        )];
        let mut distinct: Vec<&str> = versions.iter().map(Version::as_str).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let detail = format!("{} versions after {count} writes", distinct.len());
        let verdict = CheckVerdict::safe_if(distinct.len() == count);
        findings.push(CheckFinding::new(
            "8.8.3",
            "a write changes the version",
            ClientRisk::Lost,
            verdict,
            detail,
        ));
        let (verdict, detail) = match (told, wrong) {
            (0, _) => (
                CheckVerdict::Unchecked,
                "no write returns a version".to_owned(),
            ),
            _ => (
                CheckVerdict::safe_if(wrong == 0),
                format!("{wrong} of {told} differ"),
            ),
        };
        let name = "a write returns the version of the next read";
        let risk = ClientRisk::Lost;
        findings.push(CheckFinding::new("8.8.3", name, risk, verdict, detail));
        Ok(findings)
    }

    /// Makes a write whose condition is false.
    async fn rejects(
        &self,
        name: &str,
        section: &'static str,
        key: &str,
        when: When,
    ) -> Result<CheckFinding, Error> {
        let before = self.state(key).await?;
        let result = self.put(key, WRITERS, when).await;
        let is_kept = self.state(key).await? == before;
        let (verdict, detail) = match &result {
            Ok(_) => (CheckVerdict::No, "it succeeded".to_owned()),
            Err(error) if !is_kept => (
                CheckVerdict::No,
                format!("the object was changed, despite: {error}"),
            ),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                (CheckVerdict::Yes, "a conflict".to_owned())
            }
            Err(error) => (CheckVerdict::Differs, error.to_string()),
        };
        let risk = ClientRisk::Lost;
        Ok(CheckFinding::new(section, name, risk, verdict, detail))
    }

    /// Runs a race for a new object.
    async fn race(&self, kind: RaceKind) -> Result<RaceOutcome, Error> {
        let key = self.key();
        let mut when = When::Absent;
        if kind == RaceKind::Replace {
            let created = self.put(&key, WRITERS, When::Absent).await;
            created.map_err(|error| Error::runtime(format!("can't create {key}: {error}")))?;
            when = self
                .state(&key)
                .await?
                .map_or(When::Absent, |(_, version)| When::Is(version));
        }
        let put = |number| {
            let (key, when) = (&key, when.clone());
            async move { status(self.put(key, number, when).await.as_ref().err()) }
        };
        let statuses = join_all((0..WRITERS).map(put)).await;
        let (status, body) = match self.state(&key).await? {
            Some((body, _)) => (StatusCode::OK, body),
            None => (StatusCode::NOT_FOUND, Bytes::new()),
        };
        let mut after = Response::new(body);
        *after.status_mut() = status;
        Ok(outcome(kind, &SeenResource::of(after), &statuses))
    }

    /// Returns the path of a new object.
    fn key(&self) -> String {
        let mut keys = self.keys.borrow_mut();
        let name = format!("ifmatch-check-{:016x}-{}", self.random, keys.len());
        let folder = &self.place.path;
        let key = if folder.is_empty() {
            name
        } else {
            format!("{folder}/{name}")
        };
        keys.push(key.clone());
        key
    }

    /// Writes the content with this number.
    async fn put(
        &self,
        key: &str,
        number: usize,
        when: When,
    ) -> Result<Option<Version>, ClientError> {
        let put = Put {
            body: content(number).into(),
            when,
            id: String::new(),
            fence: None,
        };
        let late = |_| {
            ClientError::new(
                ErrorKind::Unknown,
                format!("no response within {PATIENCE:?}"),
            )
        };
        timeout(PATIENCE, self.place.objects.put(key, &put))
            .await
            .map_err(late)?
    }

    /// Reads an object.
    async fn state(&self, key: &str) -> Result<ObjectState, Error> {
        let read = timeout(PATIENCE, self.place.objects.get(key, None, None)).await;
        let read = read.map_err(|_| {
            Error::runtime(format!(
                "the store didn't respond within {PATIENCE:?} ({key}). Check the URL and the network."
            ))
        })?;
        match read.map_err(|error| Error::runtime(format!("{key}: {error}")))? {
            Read::Found(found) => match found.version {
                Some(version) => Ok(Some((found.body, version))),
                None => Err(Error::runtime(
                    "the store sends neither a strong ETag nor a version, so conditional writes are impossible",
                )),
            },
            Read::Absent | Read::Unchanged { .. } => Ok(None),
        }
    }

    /// Deletes everything that the check has written.
    async fn clear(&self) -> Result<(), Error> {
        for key in self.keys.take() {
            if let Some((_, version)) = self.state(&key).await? {
                let deleted = self.place.objects.delete(&key, &version).await;
                deleted.map_err(|error| Error::runtime(format!("can't delete {key}: {error}")))?;
            }
        }
        Ok(())
    }
}

/// Returns the status by which HTTP would tell a result.
fn status(error: Option<&ClientError>) -> StatusCode {
    match error.map(ClientError::kind) {
        None => StatusCode::OK,
        Some(ErrorKind::Conflict { .. }) => StatusCode::PRECONDITION_FAILED,
        Some(ErrorKind::Unknown) => StatusCode::BAD_GATEWAY,
        Some(_) => StatusCode::FORBIDDEN,
    }
}
