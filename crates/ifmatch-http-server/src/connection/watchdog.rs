//! Timeouts of a connection, decided at each tick, without a clock.

use std::time::Duration;

use super::HttpProtocol;
use super::activity::ActivitySnapshot;
use crate::limits::ServerLimits;
use crate::progress_timeout::MIN_PROGRESS;

/// Time that a connection without requests stays open once the server stops. A client may have sent one.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// Ticks in the shortest timeout, which sets the precision of all.
const TICKS: u32 = 4;

/// Watches one connection from tick to tick.
///
/// A connection has one timer for all of its requests, so requests cost none. A timeout takes effect at most one tick
/// late.
#[derive(Debug)]
pub(crate) struct Watchdog {
    protocol: HttpProtocol,
    tick: Duration,
    head_timeout: Duration,
    body_timeout: Duration,
    keep_alive: Duration,
    last: ActivitySnapshot,
    /// Bytes read when the last request began or ended. Later bytes belong to no request yet.
    read_at_transition: u64,
    /// Bytes written when the client last made enough progress.
    written_at_progress: u64,
    /// Time without a request in flight.
    idle: Duration,
    /// Time with a partial head.
    in_head: Duration,
    /// Time in which the client didn't read enough of the available data.
    stuck: Duration,
}

/// Reason to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client hasn't sent a complete request head in time.
    SlowHead,
    /// The client reads its response too slowly.
    SlowReader,
    /// There was no request for the keep-alive time.
    Idle,
    /// The connection is idle, and another client waits for its slot.
    Evicted,
}

impl Watchdog {
    /// Watches a new connection.
    pub(crate) fn new(limits: &ServerLimits, protocol: HttpProtocol) -> Self {
        let shortest = limits
            .head_timeout
            .min(limits.body_timeout)
            .min(limits.keep_alive);
        Self {
            protocol,
            tick: (shortest / TICKS).max(Duration::from_millis(1)),
            head_timeout: limits.head_timeout,
            body_timeout: limits.body_timeout,
            keep_alive: limits.keep_alive,
            last: ActivitySnapshot::default(),
            read_at_transition: 0,
            written_at_progress: 0,
            idle: Duration::ZERO,
            in_head: Duration::ZERO,
            stuck: Duration::ZERO,
        }
    }

    /// Closes the connection soon after its last request: a client that is gone must not delay the end of the server.
    pub(crate) fn stop(&mut self) {
        self.keep_alive = self.keep_alive.min(LINGER);
    }

    /// Interval between calls of [`Watchdog::check`].
    pub(crate) fn tick(&self) -> Duration {
        self.tick
    }

    /// Returns the reason to close the connection, if there is one after another tick.
    pub(crate) fn check(&mut self, now: ActivitySnapshot) -> Option<CloseReason> {
        let last = std::mem::replace(&mut self.last, now);
        if self.is_stuck(now) {
            return Some(CloseReason::SlowReader);
        }
        if now.transitions != last.transitions {
            self.read_at_transition = now.bytes_read;
        }
        if now.transitions != last.transitions || now.in_flight > 0 || now.blocked {
            // Request processing may take its time; a stalled request body has its own timeout.
            (self.idle, self.in_head) = Default::default();
            return None;
        }
        self.idle += self.tick;
        self.in_head = if self.awaits_head(now) {
            self.in_head + self.tick
        } else {
            Duration::ZERO
        };
        if self.in_head >= self.head_timeout {
            Some(CloseReason::SlowHead)
        } else if self.in_head.is_zero() && self.idle >= self.keep_alive {
            Some(CloseReason::Idle)
        } else {
            None
        }
    }

    /// Returns `true` if the client reads the written data too slowly.
    fn is_stuck(&mut self, now: ActivitySnapshot) -> bool {
        if !now.blocked || now.bytes_written - self.written_at_progress >= MIN_PROGRESS {
            self.stuck = Duration::ZERO;
            self.written_at_progress = now.bytes_written;
            return false;
        }
        self.stuck += self.tick;
        self.stuck >= self.body_timeout
    }

    /// Returns `true` if the connection is waiting for a request: the first one, or the rest of a partial one. On
    /// HTTP/2, bytes between requests may not belong to a request.
    fn awaits_head(&self, now: ActivitySnapshot) -> bool {
        now.transitions == 0
            || (self.protocol == HttpProtocol::Http1 && now.bytes_read > self.read_at_transition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Head 4 s, body 8 s, idle 12 s: a tick is a second.
    fn watchdog(protocol: HttpProtocol) -> Watchdog {
        let limits = ServerLimits {
            head_timeout: Duration::from_secs(4),
            body_timeout: Duration::from_secs(8),
            keep_alive: Duration::from_secs(12),
            ..ServerLimits::default()
        };
        Watchdog::new(&limits, protocol)
    }

    const BOTH: [HttpProtocol; 2] = [HttpProtocol::Http1, HttpProtocol::Http2];

    /// Returns the tick at which the connection is closed, and the reason.
    fn closed(
        mut watchdog: Watchdog,
        mut at: impl FnMut(u64) -> ActivitySnapshot,
    ) -> Option<(u64, CloseReason)> {
        (1..100).find_map(|tick| Some((tick, watchdog.check(at(tick))?)))
    }

    #[test]
    fn a_silent_client_times_out_as_a_slow_head() {
        for protocol in BOTH {
            assert_eq!(
                closed(watchdog(protocol), |_| ActivitySnapshot::default()),
                Some((4, CloseReason::SlowHead))
            );
        }
    }

    #[test]
    fn a_trickling_head_times_out() {
        let drip = |tick| ActivitySnapshot {
            bytes_read: tick,
            ..ActivitySnapshot::default()
        };
        for protocol in BOTH {
            assert_eq!(
                closed(watchdog(protocol), drip),
                Some((4, CloseReason::SlowHead))
            );
        }
    }

    #[test]
    fn each_head_has_the_full_timeout() {
        for begin in [2, 7, 11] {
            let at = |tick| ActivitySnapshot {
                transitions: 2,
                bytes_read: if tick < begin { 50 } else { 60 },
                ..ActivitySnapshot::default()
            };
            assert_eq!(
                closed(watchdog(HttpProtocol::Http1), at),
                Some((begin + 3, CloseReason::SlowHead)),
                "{begin}"
            );
        }
    }

    #[test]
    fn a_connection_between_requests_is_kept_alive() {
        let served = |_| ActivitySnapshot {
            transitions: 2,
            bytes_read: 50,
            ..ActivitySnapshot::default()
        };
        for protocol in BOTH {
            assert_eq!(
                closed(watchdog(protocol), served),
                Some((13, CloseReason::Idle))
            );
        }
    }

    #[test]
    fn a_stopping_server_does_not_keep_a_connection_alive() {
        let snapshot = |in_flight| ActivitySnapshot {
            in_flight,
            transitions: 1,
            bytes_read: 50,
            ..ActivitySnapshot::default()
        };
        for protocol in BOTH {
            let mut watchdog = watchdog(protocol);
            watchdog.stop();
            assert_eq!(
                (watchdog.check(snapshot(1)), watchdog.check(snapshot(1))),
                (None, None)
            );
            assert_eq!(watchdog.check(snapshot(0)), Some(CloseReason::Idle));
        }
    }

    #[test]
    fn pings_do_not_keep_a_connection_alive() {
        let pings = |tick| ActivitySnapshot {
            transitions: 2,
            bytes_read: tick,
            bytes_written: tick,
            ..ActivitySnapshot::default()
        };
        assert_eq!(
            closed(watchdog(HttpProtocol::Http2), pings),
            Some((13, CloseReason::Idle))
        );
    }

    #[test]
    fn a_slow_handler_does_not_time_out() {
        let working = |_| ActivitySnapshot {
            in_flight: 1,
            transitions: 1,
            bytes_read: 50,
            ..ActivitySnapshot::default()
        };
        for protocol in BOTH {
            assert_eq!(closed(watchdog(protocol), working), None);
        }
    }

    #[test]
    fn a_slow_reader_times_out() {
        let blocked = ActivitySnapshot {
            blocked: true,
            in_flight: 1,
            transitions: 1,
            ..ActivitySnapshot::default()
        };
        for protocol in BOTH {
            let stuck = |_| ActivitySnapshot {
                bytes_written: 9,
                ..blocked
            };
            assert_eq!(
                closed(watchdog(protocol), stuck),
                Some((8, CloseReason::SlowReader))
            );
            let dripping = |tick| ActivitySnapshot {
                bytes_written: tick,
                ..blocked
            };
            assert_eq!(
                closed(watchdog(protocol), dripping),
                Some((8, CloseReason::SlowReader))
            );
            let begins_others = |tick| ActivitySnapshot {
                transitions: tick,
                ..blocked
            };
            assert_eq!(
                closed(watchdog(protocol), begins_others),
                Some((8, CloseReason::SlowReader))
            );
            let has_no_request = |_| ActivitySnapshot {
                in_flight: 0,
                ..blocked
            };
            assert_eq!(
                closed(watchdog(protocol), has_no_request),
                Some((8, CloseReason::SlowReader))
            );
            let slow = |tick| ActivitySnapshot {
                bytes_written: tick / 7 * MIN_PROGRESS,
                ..blocked
            };
            assert_eq!(closed(watchdog(protocol), slow), None);
        }
    }
}
