//! Register on any HTTP server that honours `If-Match` and `If-None-Match: *` with strong tags, first of all an ifmatch
//! gateway. Any number of processes can share it, wherever they can send requests.
//!
//! ```no_run
//! use hyper_util::client::legacy::Client;
//! use hyper_util::rt::TokioExecutor;
//! use ifmatch_http_register::HttpRegister;
//! use ifmatch_register::Driver;
//!
//! # async fn run() -> Result<(), ifmatch_http_register::ConnectError> {
//! let client = Client::builder(TokioExecutor::new()).build_http();
//! let register = HttpRegister::open(client, "http://10.0.0.1:10000/records/notes".parse()?).await?;
//! let driver = Driver::new(register);
//! # Ok(())
//! # }
//! ```
//!
//! # Requests
//!
//! | call | request |
//! |---|---|
//! | load | GET |
//! | swap | PUT with `If-Match`, or with `If-None-Match: *` for the first record; DELETE with `If-Match` |
//! | swap of a record that this process hasn't just seen | a GET before it, for the tag |
//! | swap if the response's tag doesn't begin with the hash of what was sent | a GET after its PUT |
//! | scan | pages of names in the gateway's plain dialect, then a GET for each record |
//!
//! Each record is an object in the folder of the [`Address`]: see [`object`].
//!
//! # What the server must do
//!
//! - **Strong tags that don't recur**: each version's differs from all before it. Contents never recur, so hashes qualify;
//!   times of files don't. [`HttpRegister::open`] tests the rest.
//! - **Current responses**: a GET shows every earlier write. So there is no cache in between that ignores `no-cache`.
//! - **No resent writes**: a proxy in between that repeats a PUT after a failure may report the conflict with its own success.
//! - **Clear success**: another server, such as one with a login page, may respond to a PUT with 200 and a strong tag
//!   of its own. So the response counts if its tag begins with the SHA-256 of what was sent, as a gateway's does;
//!   otherwise, the register sends a GET to check. The response to a DELETE is 204; any other success is ambiguous. Use
//!   TLS where another server might respond.
//! - **Durability**: the register's [guarantee](ifmatch_register::Guarantee) is the server's.
//!
//! A server's `Date` has only seconds, and says nothing of its age. So processes compare deadlines with their own clocks, and
//! notice others that are ahead ([`PeerClocks`]).

mod address;
mod exchange;
mod listing;
mod probe;
mod tags;

use http::{StatusCode, Uri};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Engine, Key, PeerClocks, Register, RegisterError, RegisterErrorKind, Scan, Swap, async_trait,
    object,
};
use ifmatch_runtime::{Clock, SystemClock};

pub use address::Address;
pub use exchange::Transport;
pub use ifmatch_register::{ConnectError, ConnectErrorKind};

use exchange::{ServerResponse, When, exchange};
use tags::Tags;

/// A register on an HTTP server.
///
/// A swap without a response, with 408, with a 5xx other than 507, with a redirect other than 307 and 308, or with a success that isn't
/// the server's is [`Ambiguous`](RegisterErrorKind::Ambiguous), and is never sent again.
#[derive(Debug)]
pub struct HttpRegister<T> {
    transport: T,
    address: Address,
    tags: Tags,
    peers: PeerClocks,
}

impl<T: Transport> HttpRegister<T> {
    /// Opens a register, and tests with a probe object, `probe`, that the server honours conditions. The first time, it writes
    /// that object.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Unreachable`] without a response; [`ConnectErrorKind::Denied`] if the server refuses the token;
    /// [`ConnectErrorKind::Unsuitable`] if it ignores a condition, or sends no strong tag.
    pub async fn open(transport: T, address: Address) -> Result<Self, ConnectError> {
        probe::probe(&transport, &address).await?;
        Ok(Self {
            transport,
            address,
            tags: Tags::default(),
            peers: PeerClocks::default(),
        })
    }

    /// Returns the URL of an object.
    fn uri(&self, name: &str) -> Result<Uri, RegisterError> {
        self.address
            .object(name)
            .map_err(|error| RegisterError::new(RegisterErrorKind::Unavailable, error))
    }

    /// Reads an object, and remembers its tag.
    async fn get(&self, name: &str) -> Result<Option<(Key, Record)>, RegisterError> {
        let request = exchange::read(self.uri(name)?, self.address.authorization());
        let answer = exchange(&self.transport, request, RegisterErrorKind::Unavailable).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(None),
            _ => return Err(answer.error(RegisterErrorKind::Unavailable, "GET")),
        }
        let tag = answer.tag().ok_or_else(|| {
            answer.error(RegisterErrorKind::Unavailable, "GET without a strong tag")
        })?;
        let (key, Some(record)) = object::decode(&answer.body)? else {
            return Err(RegisterErrorKind::Unreadable.into());
        };
        if let Some(ahead) = self.peers.saw(&key, &record, SystemClock.now()) {
            tracing::warn!("{ahead}");
        }
        self.tags.saw(&key, Some((record.revision(), tag)));
        Ok(Some((key, record)))
    }

    /// Returns the condition of a swap, or the record that it conflicts with.
    async fn condition(
        &self,
        key: &Key,
        expected: Revision,
    ) -> Result<Result<When, Option<Record>>, RegisterError> {
        if expected == Revision::NONE {
            return Ok(Ok(When::Absent));
        }
        if let Some(tag) = self.tags.of(key, expected) {
            return Ok(Ok(When::Tagged(tag)));
        }
        let found = self.load(key).await?;
        Ok(self.tags.of(key, expected).map(When::Tagged).ok_or(found))
    }

    /// Checks that a PUT was done. If the record differs, the PUT may have failed, or another writer may have replaced it since.
    async fn confirm(
        &self,
        key: &Key,
        next: &Record,
        answer: &ServerResponse,
    ) -> Result<Swap, RegisterError> {
        let found = self
            .load(key)
            .await
            .map_err(|error| RegisterError::new(RegisterErrorKind::Ambiguous, error))?;
        if found.as_ref() == Some(next) {
            return Ok(Swap::Done);
        }
        Err(answer.error(
            RegisterErrorKind::Ambiguous,
            "a conditional write, without the tag of what was sent,",
        ))
    }
}

#[async_trait]
impl<T: Transport> Register for HttpRegister<T> {
    /// The processes that share the register have another time, if that's known.
    fn engine(&self) -> Engine {
        Engine {
            time: self.peers.time(SystemClock.now()),
            ..Engine::default()
        }
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        match self.get(&object::name(key)).await? {
            // A server that ignores case keeps several keys in one object.
            Some((other, _)) if other != *key => Err(RegisterErrorKind::Unreadable.into()),
            Some((_, record)) => Ok(Some(record)),
            None => {
                self.tags.saw(key, None);
                Ok(None)
            }
        }
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let when = match self.condition(key, expected).await? {
            Ok(When::Absent) if next.is_none() => {
                return Ok(self
                    .load(key)
                    .await?
                    .map_or(Swap::Done, |found| Swap::Conflict(Some(found))));
            }
            Ok(when) => when,
            Err(found) => return Ok(Swap::Conflict(found)),
        };
        let content = next
            .map(|next| object::encode(key, Some(next)))
            .transpose()?;
        let sent = content.as_deref().map(ContentHash::of);
        let uri = self.uri(&object::name(key))?;
        let request = exchange::write(uri, self.address.authorization(), &when, content);
        let answer = exchange(&self.transport, request, RegisterErrorKind::Ambiguous).await?;
        match outcome(&answer, &when, next)? {
            Outcome::Done => match (next, sent) {
                // It may come from another server, such as a login page's.
                (Some(next), Some(sent)) if !answer.is_tagged_as(&sent) => {
                    self.confirm(key, next, &answer).await
                }
                (next, _) => {
                    self.tags
                        .saw(key, next.map(Record::revision).zip(answer.tag()));
                    Ok(Swap::Done)
                }
            },
            Outcome::Refused => Ok(Swap::Conflict(self.load(key).await?)),
        }
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        listing::scan(self, scan).await
    }
}

/// The outcome of a write.
enum Outcome {
    /// The server has written.
    Done,
    /// The condition is false, or another write was under way.
    Refused,
}

/// Returns what a response to a write means. S3 returns 404 if the object is gone, and 409 during another write.
fn outcome(
    answer: &ServerResponse,
    when: &When,
    next: Option<&Record>,
) -> Result<Outcome, RegisterError> {
    let error = |kind| Err(answer.error(kind, "a conditional write"));
    match (answer.status, when) {
        (StatusCode::NO_CONTENT, _) => Ok(Outcome::Done),
        // To a DELETE, a login page says 200, too, and no tag tells it from the server.
        (StatusCode::OK | StatusCode::CREATED, _) if next.is_some() => Ok(Outcome::Done),
        (StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT, _)
        | (StatusCode::NOT_FOUND, When::Tagged(_)) => Ok(Outcome::Refused),
        (StatusCode::INSUFFICIENT_STORAGE, _) => error(RegisterErrorKind::Full),
        (StatusCode::REQUEST_TIMEOUT, _) => error(RegisterErrorKind::Ambiguous),
        (StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT, _) => {
            error(RegisterErrorKind::Unavailable)
        }
        (status, _) if status.is_client_error() => error(RegisterErrorKind::Unavailable),
        // Other redirects may follow a write that was done, as 303 does (RFC 9110 §15.4.4).
        _ => error(RegisterErrorKind::Ambiguous),
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
