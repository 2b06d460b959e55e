//! The decision to send a request again.

use http::{Method, StatusCode};

use crate::error::ProxyErrorKind;

/// Maximum number of other servers that get a request after a server has failed it.
const OTHERS: u32 = 2;

/// The attempts of one request.
#[derive(Debug)]
pub(crate) struct RequestAttempts {
    /// `true` if the request may be carried out twice.
    is_repeatable: bool,
    /// `true` if a server has got it twice.
    was_repeated: bool,
    /// Number of other servers that got it after a failure.
    others: u32,
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAttempt {
    /// Send the request to the same server, over another connection.
    Same,
    /// Send it to another server.
    Other,
    /// Return the response or the error.
    Return,
}

impl RequestAttempts {
    /// Begins the attempts of a request. Only safe methods without content are repeatable. A PUT or DELETE isn't, although it is
    /// idempotent: a server may have carried it out, and another writer may have written since, whose change a repetition would
    /// overwrite. With `If-Match`, the repetition would get 412 although the write took effect.
    pub(crate) fn of(method: &Method, is_empty: bool) -> Self {
        Self {
            is_repeatable: is_empty && is_safe(method),
            was_repeated: false,
            others: 0,
        }
    }

    /// Decides after the head of a response, or an error instead of one.
    pub(crate) fn next(&mut self, outcome: Result<StatusCode, ProxyErrorKind>) -> NextAttempt {
        let is_broken = outcome == Err(ProxyErrorKind::Broken);
        match outcome {
            // The server got no part of it.
            Err(ProxyErrorKind::Unreachable) => NextAttempt::Other,
            _ if !self.is_repeatable => NextAttempt::Return,
            // Perhaps the server closed an idle connection just before.
            Err(_) if is_broken && !self.was_repeated => {
                self.was_repeated = true;
                NextAttempt::Same
            }
            // A server that hangs has used up the time of the request.
            Err(_) if !is_broken => NextAttempt::Return,
            Ok(status) if !is_faulty(status) => NextAttempt::Return,
            _ if self.others < OTHERS => {
                self.others += 1;
                NextAttempt::Other
            }
            _ => NextAttempt::Return,
        }
    }
}

/// Returns `true` if a server says that it can't process requests now.
pub(crate) fn is_faulty(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Returns `true` for the safe methods of RFC 9110 §9.2.1, and QUERY.
fn is_safe(method: &Method) -> bool {
    method.is_safe() || method.as_str() == "QUERY"
}

#[cfg(test)]
mod tests {
    use super::*;
    use NextAttempt::{Other, Return, Same};
    use ProxyErrorKind::{Broken, Interrupted, Overloaded, Timeout, Unreachable};

    #[test]
    fn only_what_no_server_may_have_carried_out_is_sent_again() {
        let status = |status| Ok(StatusCode::from_u16(status).expect("a status"));
        for (method, is_empty, outcomes) in [
            ("GET", true, &[(status(200), Return)][..]),
            ("GET", true, &[(status(500), Return)]),
            (
                "GET",
                true,
                &[
                    (status(502), Other),
                    (status(503), Other),
                    (status(504), Return),
                ],
            ),
            (
                "GET",
                true,
                &[
                    (Err(Broken), Same),
                    (Err(Broken), Other),
                    (Err(Broken), Other),
                    (Err(Broken), Return),
                ],
            ),
            (
                "GET",
                true,
                &[
                    (Err(Broken), Same),
                    (status(503), Other),
                    (Err(Broken), Other),
                    (status(200), Return),
                ],
            ),
            ("GET", true, &[(Err(Timeout), Return)]),
            ("GET", true, &[(Err(Interrupted), Return)]),
            ("GET", true, &[(Err(Overloaded), Return)]),
            ("GET", true, &[(Err(Unreachable), Other); 9]),
            ("QUERY", true, &[(status(503), Other)]),
            ("GET", false, &[(status(503), Return)]),
            ("GET", false, &[(Err(Broken), Return)]),
            ("PUT", true, &[(status(503), Return)]),
            ("PUT", false, &[(Err(Broken), Return)]),
            ("DELETE", true, &[(Err(Broken), Return)]),
            ("DELETE", true, &[(Err(Timeout), Return)]),
            (
                "POST",
                false,
                &[(Err(Unreachable), Other), (Err(Broken), Return)],
            ),
        ] {
            let mut attempts = RequestAttempts::of(&method.parse().expect("a method"), is_empty);
            for (outcome, expected) in outcomes {
                assert_eq!(
                    attempts.next(*outcome),
                    *expected,
                    "{method} {is_empty} {outcomes:?}"
                );
            }
        }
    }
}
