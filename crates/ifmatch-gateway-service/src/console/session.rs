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
use tokio::sync::watch;

use super::inside::RequestFailure;

/// Beginning of the names of all consoles' cookies. The port follows, since cookies don't distinguish ports.
const NAME: &str = "ifmatch-console-";
/// Maximum number of sessions of a token. The one that was idle for longest makes room; other tokens' sessions stay.
const MOST: usize = 20;
/// Time after which an idle session ends.
const IDLE: Duration = Duration::from_hours(12);

/// An operator who has signed in, or any, if no token is needed. It has no `Debug`, so its tokens get into no log.
#[derive(Clone)]
pub(super) struct Session {
    /// The operator's token.
    pub(super) token: Option<String>,
    /// The token of the forms of this session.
    pub(super) form_token: String,
}

impl Session {
    /// Returns `true` if a form is one of this session.
    pub(super) fn has_form_token(&self, token: &str) -> bool {
        // Digests, so the time of the comparison says nothing about the token.
        Sha256::digest(token) == Sha256::digest(&self.form_token)
    }
}

/// All sessions.
pub(super) struct Sessions {
    /// Name of the cookie.
    name: String,
    /// The session of everyone, if no token is needed.
    open: Session,
    /// The others by the digest of their cookie, each with the time of its last request.
    by_cookie: Mutex<HashMap<[u8; 32], (Session, Timestamp)>>,
    /// Announces each end of a session.
    ended: watch::Sender<()>,
}

impl Sessions {
    /// Returns no sessions yet but the one of everyone, for the console at this port.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub(super) fn new(port: u16) -> Result<Self, RandomError> {
        let open = Session {
            token: None,
            form_token: random()?,
        };
        Ok(Self {
            name: format!("{NAME}{port}"),
            open,
            by_cookie: Mutex::default(),
            ended: watch::Sender::new(()),
        })
    }

    /// Returns the session of everyone, if no token is needed.
    pub(super) fn open(&self) -> Session {
        self.open.clone()
    }

    /// Returns the session that a request belongs to, which is no longer idle.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<Session> {
        let now = SystemClock.now();
        let mut sessions = self.lock();
        sessions.retain(|_, (_, used)| now < used.saturating_add(IDLE));
        // A browser may send others of the name first: those of a longer path, or that another port of the host has set.
        let key = self.keys(headers).find(|key| sessions.contains_key(key))?;
        let (session, used) = sessions.get_mut(&key)?;
        *used = now;
        Some(session.clone())
    }

    /// Begins a session. Returns its cookie.
    pub(super) fn begin(
        &self,
        token: String,
        is_secure: bool,
    ) -> Result<HeaderValue, RequestFailure> {
        let failed = |error: &dyn std::fmt::Display| {
            RequestFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        };
        let random = || random().map_err(|error| failed(&error));
        let (cookie, session) = (
            random()?,
            Session {
                token: Some(token),
                form_token: random()?,
            },
        );
        let mut sessions = self.lock();
        let of_token = sessions
            .iter()
            .filter(|(_, (other, _))| other.token == session.token);
        let mut of_token: Vec<_> = of_token.map(|(key, (_, used))| (*used, *key)).collect();
        if of_token.len() >= MOST {
            of_token.sort_unstable();
            sessions.remove(&of_token[0].1);
            self.ended.send_replace(());
        }
        sessions.insert(Sha256::digest(&cookie).into(), (session, SystemClock.now()));
        let secure = if is_secure { "; Secure" } else { "" };
        let cookie = format!(
            "{}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}",
            self.name
        );
        HeaderValue::try_from(cookie).map_err(|error| failed(&error))
    }

    /// Ends the sessions of all cookies in a request: the operator signs out, whichever comes first.
    pub(super) fn end(&self, headers: &HeaderMap) {
        let mut sessions = self.lock();
        let ended = self
            .keys(headers)
            .filter(|key| sessions.remove(key).is_some())
            .count();
        drop(sessions);
        if ended > 0 {
            self.ended.send_replace(());
        }
    }

    /// Returns a receiver that changes whenever a session ends.
    pub(super) fn ended(&self) -> watch::Receiver<()> {
        self.ended.subscribe()
    }

    /// Returns the digests of all cookies of the console's name.
    fn keys(&self, headers: &HeaderMap) -> impl Iterator<Item = [u8; 32]> {
        let cookies = fields::lines(headers, COOKIE)
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        cookies.filter_map(|cookie| {
            let value = cookie
                .trim_ascii()
                .strip_prefix(self.name.as_bytes())?
                .strip_prefix(b"=")?;
            Some(Sha256::digest(value).into())
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], (Session, Timestamp)>> {
        self.by_cookie
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the cookies of consoles from a request that is forwarded: a browser sends them to each port of their host.
pub(crate) fn remove_cookies(headers: &mut HeaderMap) {
    let is_of_console = |cookie: &&[u8]| cookie.trim_ascii_start().starts_with(NAME.as_bytes());
    let cookies = |line: &HeaderValue| {
        line.as_bytes()
            .split(|byte| *byte == b';')
            .any(|cookie| is_of_console(&cookie))
    };
    if !fields::lines(headers, COOKIE).any(cookies) {
        return;
    }
    let rest = |line: &HeaderValue| {
        let kept: Vec<_> = line
            .as_bytes()
            .split(|byte| *byte == b';')
            .filter(|cookie| !is_of_console(cookie))
            .collect();
        HeaderValue::from_bytes(kept.join(&b';').trim_ascii())
            .ok()
            .filter(|line| !line.is_empty())
    };
    let lines: Vec<_> = fields::lines(headers, COOKIE).filter_map(rest).collect();
    headers.remove(COOKIE);
    for line in lines {
        headers.append(COOKIE, line);
    }
}

/// Returns 256 random bits in hexadecimal digits.
fn random() -> Result<String, RandomError> {
    (0..4)
        .map(|_| nonce().map(|number| format!("{number:016x}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie_of(begun: &HeaderValue) -> HeaderMap {
        let cookie = begun.to_str().unwrap().split(';').next().unwrap();
        HeaderMap::from_iter([(
            COOKIE,
            HeaderValue::try_from(format!("a=b; {cookie};c=d")).unwrap(),
        )])
    }

    #[test]
    fn a_token_ends_no_session_of_another_one() {
        let sessions = Sessions::new(1).unwrap();
        let begin = |token: &str| cookie_of(&sessions.begin(token.to_owned(), false).unwrap());
        let writer = begin("writer");
        let readers: Vec<_> = (0..=MOST).map(|_| begin("reader")).collect();
        assert!(sessions.of(&writer).is_some());
        let known = |headers: &HeaderMap| sessions.of(headers).is_some();
        assert_eq!(
            readers.iter().filter(|headers| known(headers)).count(),
            MOST
        );
        sessions.end(&writer);
        assert!(!known(&writer));
    }

    #[test]
    fn consoles_at_two_ports_of_a_host_have_their_own_cookies() {
        let [one, other] = [1, 2].map(|port| Sessions::new(port).unwrap());
        let mut headers = cookie_of(&one.begin("a".to_owned(), false).unwrap());
        headers.append(
            COOKIE,
            cookie_of(&other.begin("b".to_owned(), true).unwrap())[COOKIE].clone(),
        );
        let token = |sessions: &Sessions| sessions.of(&headers).and_then(|session| session.token);
        assert_eq!(
            (token(&one).as_deref(), token(&other).as_deref()),
            (Some("a"), Some("b"))
        );
    }

    #[test]
    fn another_cookie_of_the_name_neither_hides_a_session_nor_keeps_it() {
        for order in [0, 1] {
            let sessions = Sessions::new(1).unwrap();
            let begun = cookie_of(&sessions.begin("a".to_owned(), false).unwrap())[COOKIE].clone();
            let mut lines = vec![
                begun,
                HeaderValue::from_static("ifmatch-console-1=of-another-path"),
            ];
            lines.rotate_left(order);
            let headers: HeaderMap = lines.into_iter().map(|line| (COOKIE, line)).collect();
            assert_eq!(
                sessions
                    .of(&headers)
                    .and_then(|session| session.token)
                    .as_deref(),
                Some("a"),
                "{order}"
            );
            sessions.end(&headers);
            assert!(sessions.of(&headers).is_none(), "signed out, {order}");
        }
    }

    #[test]
    fn only_the_cookies_of_consoles_are_removed() {
        for (lines, left) in [
            (&["a=1; b=\"x\""][..], &["a=1; b=\"x\""][..]),
            (&["a=1; ifmatch-console-10004=x; b=2"], &["a=1; b=2"]),
            (&["ifmatch-console-1=x;b=2"], &["b=2"]),
            (&["ifmatch-console-1=x"], &[]),
            (
                &["a=1", "  ifmatch-console-1=x ; ", "c=3;ifmatch-console-2=y"],
                &["a=1", "c=3"],
            ),
            (
                &["x-ifmatch-console-1=x;ifmatch-consol=y"],
                &["x-ifmatch-console-1=x;ifmatch-consol=y"],
            ),
        ] {
            let mut headers: HeaderMap = lines
                .iter()
                .map(|line| (COOKIE, HeaderValue::from_static(line)))
                .collect();
            remove_cookies(&mut headers);
            let kept: Vec<_> = headers
                .get_all(COOKIE)
                .iter()
                .map(|line| line.to_str().unwrap())
                .collect();
            assert_eq!(kept, left, "{lines:?}");
        }
    }
}
