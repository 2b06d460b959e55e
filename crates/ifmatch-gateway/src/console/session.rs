//! The sessions of operators: a random cookie stands for the token that the operator has signed in with.
//!
//! The token stays in this process, and is checked again with each request, so a reload that removes it ends its sessions.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue, StatusCode};
use ifmatch_core::date::Timestamp;
use ifmatch_core::fields;
use ifmatch_runtime::{Clock, RandomError, SystemClock, nonce};
use sha2::{Digest, Sha256};

use super::inside::Failure;

const NAME: &str = "ifmatch-console";
/// Maximum number of sessions. The one that was idle for longest makes room.
const MOST: usize = 100;
/// Time after which an idle session ends.
const IDLE: Duration = Duration::from_hours(12);

/// An operator who has signed in, or any, if no token is needed.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// The operator's token.
    pub(super) token: Option<String>,
    /// The token of the forms of this session.
    pub(super) form_token: String,
}

impl Session {
    /// Returns `true` if a form is one of this session.
    pub(super) fn has_form_token(&self, token: &str) -> bool {
        // Digests, so that the time of the comparison says nothing about the token.
        Sha256::digest(token) == Sha256::digest(&self.form_token)
    }
}

/// All sessions, by the digest of their cookie.
#[derive(Debug)]
pub(super) struct Sessions {
    open: Session,
    of: Mutex<HashMap<[u8; 32], (Session, Timestamp)>>,
}

impl Sessions {
    /// Creates no sessions yet.
    pub(super) fn new() -> Result<Self, RandomError> {
        Ok(Self { open: Session { token: None, form_token: random()? }, of: Mutex::default() })
    }

    /// Returns the session of everyone, if no token is needed.
    pub(super) fn open(&self) -> Session {
        self.open.clone()
    }

    /// Returns the session that a request belongs to.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<Session> {
        let now = SystemClock.now();
        let mut sessions = self.lock();
        sessions.retain(|_, (_, used)| now < used.saturating_add(IDLE));
        let (session, used) = sessions.get_mut(&key(headers)?)?;
        *used = now;
        Some(session.clone())
    }

    /// Begins a session. Returns its cookie.
    pub(super) fn begin(&self, token: String, is_secure: bool) -> Result<HeaderValue, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        let random = || random().map_err(|error| failed(&error));
        let (cookie, session) = (random()?, Session { token: Some(token), form_token: random()? });
        let mut sessions = self.lock();
        while sessions.len() >= MOST
            && let Some(oldest) = sessions.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(Sha256::digest(&cookie).into(), (session, SystemClock.now()));
        let secure = if is_secure { "; Secure" } else { "" };
        let cookie = format!("{NAME}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}");
        HeaderValue::try_from(cookie).map_err(|error| failed(&error))
    }

    /// Ends the session that a request belongs to.
    pub(super) fn end(&self, headers: &HeaderMap) {
        if let Some(key) = key(headers) {
            self.lock().remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], (Session, Timestamp)>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut cookies =
        fields::lines(headers, COOKIE).filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(';'));
    let cookie = cookies.find_map(|cookie| cookie.trim().strip_prefix(NAME)?.strip_prefix('='))?;
    Some(Sha256::digest(cookie).into())
}

/// Returns 256 random bits in hexadecimal digits.
fn random() -> Result<String, RandomError> {
    (0..4).map(|_| nonce().map(|number| format!("{number:016x}"))).collect()
}
