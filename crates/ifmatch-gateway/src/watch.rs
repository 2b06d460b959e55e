//! When a connection has had its time: a decision without a clock, asked at every tick.

use std::time::Duration;

use crate::activity::Moment;
use crate::config::Limits;
use crate::patience::LEAST_PROGRESS;
use crate::version::Protocol;

/// Ticks in the shortest timeout: how exact the others are.
const TICKS: u32 = 4;

/// Follows one connection from tick to tick.
///
/// One timer for a connection instead of one for each request: a request costs no timer, and a limit is met at
/// most a tick late.
#[derive(Debug)]
pub(crate) struct Watch {
    protocol: Protocol,
    tick: Duration,
    head_timeout: Duration,
    body_timeout: Duration,
    keep_alive: Duration,
    last: Moment,
    /// Bytes read when the last request had begun or ended: what came since belongs to no request yet.
    read_at_turn: u64,
    /// Bytes written when the client last made enough progress.
    written_at_progress: u64,
    /// Time without a request in flight.
    quiet: Duration,
    /// Time with a partial head.
    in_head: Duration,
    /// Time in which the client did not read enough of the available data.
    stuck: Duration,
}

/// What is to be done with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sentence {
    /// It may go on.
    Fine,
    /// It holds part of a request head for too long, or has sent nothing at all.
    SlowHead,
    /// It does not take its answer.
    SlowReader,
    /// It has had no request for as long as connections are kept.
    Idle,
    /// It has no request, and another client waits for its slot.
    Dismissed,
}

impl Watch {
    /// Watches a connection that was just opened.
    pub(crate) fn new(limits: &Limits, protocol: Protocol) -> Self {
        let shortest = limits.head_timeout.min(limits.body_timeout).min(limits.keep_alive);
        Self {
            protocol,
            tick: (shortest / TICKS).max(Duration::from_millis(1)),
            head_timeout: limits.head_timeout,
            body_timeout: limits.body_timeout,
            keep_alive: limits.keep_alive,
            last: Moment::default(),
            read_at_turn: 0,
            written_at_progress: 0,
            quiet: Duration::ZERO,
            in_head: Duration::ZERO,
            stuck: Duration::ZERO,
        }
    }

    /// How long to wait for the next [`Watch::look`].
    pub(crate) fn tick(&self) -> Duration {
        self.tick
    }

    /// Decides after a tick in which the connection came to `now`.
    pub(crate) fn look(&mut self, now: Moment) -> Sentence {
        let last = std::mem::replace(&mut self.last, now);
        if self.is_stuck(now) {
            return Sentence::SlowReader;
        }
        if now.turns != last.turns {
            self.read_at_turn = now.bytes_read;
        }
        if now.turns != last.turns || now.in_flight > 0 || now.blocked {
            // Request processing may take its time; a stalled request body has its own timeout.
            (self.quiet, self.in_head) = Default::default();
            return Sentence::Fine;
        }
        self.quiet += self.tick;
        self.in_head = if self.has_half_a_head(now) { self.in_head + self.tick } else { Duration::ZERO };
        if self.in_head >= self.head_timeout {
            Sentence::SlowHead
        } else if self.in_head.is_zero() && self.quiet >= self.keep_alive {
            Sentence::Idle
        } else {
            Sentence::Fine
        }
    }

    /// Returns `true` if the client reads the written data too slowly.
    fn is_stuck(&mut self, now: Moment) -> bool {
        if !now.blocked || now.bytes_written - self.written_at_progress >= LEAST_PROGRESS {
            self.stuck = Duration::ZERO;
            self.written_at_progress = now.bytes_written;
            return false;
        }
        self.stuck += self.tick;
        self.stuck >= self.body_timeout
    }

    /// Returns `true` if the connection is waiting for a request: the first one, or the rest of a partial one. On
    /// HTTP/2, bytes between requests may not belong to a request.
    fn has_half_a_head(&self, now: Moment) -> bool {
        now.turns == 0 || (self.protocol == Protocol::Http1 && now.bytes_read > self.read_at_turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Share;

    /// Head 4 s, body 8 s, idle 12 s: a tick is a second.
    fn watch(protocol: Protocol) -> Watch {
        let share = Share { all: 0, per_client: None };
        let limits = Limits {
            body_size: 0,
            header_size: 0,
            connections: share,
            requests: share,
            streams: 0,
            head_timeout: Duration::from_secs(4),
            body_timeout: Duration::from_secs(8),
            keep_alive: Duration::from_secs(12),
        };
        Watch::new(&limits, protocol)
    }

    const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

    /// The tick at which the connection is ended, and why.
    fn sentence(mut watch: Watch, mut at: impl FnMut(u64) -> Moment) -> Option<(u64, Sentence)> {
        (1..100).map(|tick| (tick, watch.look(at(tick)))).find(|(_, sentence)| *sentence != Sentence::Fine)
    }

    #[test]
    fn a_client_that_says_nothing_is_ended_as_a_slow_head() {
        for protocol in BOTH {
            assert_eq!(sentence(watch(protocol), |_| Moment::default()), Some((4, Sentence::SlowHead)));
        }
    }

    #[test]
    fn one_byte_a_tick_does_not_make_a_head_quicker() {
        let drip = |tick| Moment { bytes_read: tick, ..Moment::default() };
        for protocol in BOTH {
            assert_eq!(sentence(watch(protocol), drip), Some((4, Sentence::SlowHead)));
        }
    }

    #[test]
    fn a_second_head_has_as_long_as_the_first_whenever_it_begins() {
        for begin in [2, 7, 11] {
            let at = |tick| Moment { turns: 2, bytes_read: if tick < begin { 50 } else { 60 }, ..Moment::default() };
            assert_eq!(sentence(watch(Protocol::Http1), at), Some((begin + 3, Sentence::SlowHead)), "{begin}");
        }
    }

    #[test]
    fn a_connection_between_requests_is_kept_until_it_is_idle() {
        let served = |_| Moment { turns: 2, bytes_read: 50, ..Moment::default() };
        for protocol in BOTH {
            assert_eq!(sentence(watch(protocol), served), Some((13, Sentence::Idle)));
        }
    }

    #[test]
    fn pings_are_no_requests() {
        let pings = |tick| Moment { turns: 2, bytes_read: tick, bytes_written: tick, ..Moment::default() };
        assert_eq!(sentence(watch(Protocol::Http2), pings), Some((13, Sentence::Idle)));
    }

    #[test]
    fn a_handler_that_takes_its_time_is_left_alone() {
        let working = |_| Moment { in_flight: 1, turns: 1, bytes_read: 50, ..Moment::default() };
        for protocol in BOTH {
            assert_eq!(sentence(watch(protocol), working), None);
        }
    }

    #[test]
    fn a_reader_that_takes_too_little_is_ended() {
        let blocked = Moment { blocked: true, in_flight: 1, turns: 1, ..Moment::default() };
        for protocol in BOTH {
            let stuck = |_| Moment { bytes_written: 9, ..blocked };
            assert_eq!(sentence(watch(protocol), stuck), Some((8, Sentence::SlowReader)));
            let dripping = |tick| Moment { bytes_written: tick, ..blocked };
            assert_eq!(sentence(watch(protocol), dripping), Some((8, Sentence::SlowReader)));
            let begins_others = |tick| Moment { turns: tick, ..blocked };
            assert_eq!(sentence(watch(protocol), begins_others), Some((8, Sentence::SlowReader)));
            let has_no_request = |_| Moment { in_flight: 0, ..blocked };
            assert_eq!(sentence(watch(protocol), has_no_request), Some((8, Sentence::SlowReader)));
            let slow = |tick| Moment { bytes_written: tick / 7 * LEAST_PROGRESS, ..blocked };
            assert_eq!(sentence(watch(protocol), slow), None);
        }
    }
}
