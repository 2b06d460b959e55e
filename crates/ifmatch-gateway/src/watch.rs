//! When a connection has had its time: a decision without a clock, asked at every tick.

use std::time::Duration;

use crate::activity::Moment;
use crate::config::Limits;

/// Ticks in the shortest timeout: how exact the others are.
const TICKS: u32 = 4;

/// Follows one connection from tick to tick.
///
/// One timer for a connection instead of one for each request: a request costs no timer, and a limit is met at
/// most a tick late.
#[derive(Debug)]
pub(crate) struct Watch {
    tick: Duration,
    head_timeout: Duration,
    body_timeout: Duration,
    keep_alive: Duration,
    last: Moment,
    /// Bytes read when the last request had begun or ended: what came since belongs to no request yet.
    read_at_turn: u64,
    /// Time without a request in flight, or with one and an answer that does not move.
    quiet: Duration,
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
}

impl Watch {
    /// Watches a connection that was just opened.
    pub(crate) fn new(limits: &Limits) -> Self {
        let shortest = limits.head_timeout.min(limits.body_timeout).min(limits.keep_alive);
        Self {
            tick: (shortest / TICKS).max(Duration::from_millis(1)),
            head_timeout: limits.head_timeout,
            body_timeout: limits.body_timeout,
            keep_alive: limits.keep_alive,
            last: Moment::default(),
            read_at_turn: 0,
            quiet: Duration::ZERO,
        }
    }

    /// How long to wait for the next [`Watch::look`].
    pub(crate) fn tick(&self) -> Duration {
        self.tick
    }

    /// Decides after a tick in which the connection came to `now`.
    pub(crate) fn look(&mut self, now: Moment) -> Sentence {
        let last = std::mem::replace(&mut self.last, now);
        if now.turns != last.turns {
            self.read_at_turn = now.bytes_read;
            self.quiet = Duration::ZERO;
            return Sentence::Fine;
        }
        if now.in_flight > 0 {
            return self.while_working(now, last);
        }
        self.quiet += self.tick;
        let never_asked = now.turns == 0;
        let half_a_head = now.bytes_read > self.read_at_turn;
        if (never_asked || half_a_head) && self.quiet >= self.head_timeout {
            Sentence::SlowHead
        } else if self.quiet >= self.keep_alive {
            Sentence::Idle
        } else {
            Sentence::Fine
        }
    }

    /// A request is being worked on, which may take its time. Only an answer that does not move is at fault; a
    /// request body that does not move has its own timeout.
    fn while_working(&mut self, now: Moment, last: Moment) -> Sentence {
        if now.answering == 0 || now.bytes_written != last.bytes_written {
            self.quiet = Duration::ZERO;
            return Sentence::Fine;
        }
        self.quiet += self.tick;
        if self.quiet >= self.body_timeout { Sentence::SlowReader } else { Sentence::Fine }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Head 4 s, body 8 s, idle 12 s: a tick is a second.
    fn watch() -> Watch {
        Watch::new(&Limits {
            body_size: 0,
            header_size: 0,
            connections: 0,
            requests: 0,
            streams: 0,
            head_timeout: Duration::from_secs(4),
            body_timeout: Duration::from_secs(8),
            keep_alive: Duration::from_secs(12),
        })
    }

    /// The tick at which the connection is ended, and why.
    fn sentence(watch: &mut Watch, mut at: impl FnMut(u64) -> Moment) -> Option<(u64, Sentence)> {
        (1..100).map(|tick| (tick, watch.look(at(tick)))).find(|(_, sentence)| *sentence != Sentence::Fine)
    }

    #[test]
    fn a_client_that_says_nothing_is_ended_as_a_slow_head() {
        assert_eq!(sentence(&mut watch(), |_| Moment::default()), Some((4, Sentence::SlowHead)));
    }

    #[test]
    fn one_byte_a_tick_does_not_make_a_head_quicker() {
        let drip = |tick| Moment { bytes_read: tick, ..Moment::default() };
        assert_eq!(sentence(&mut watch(), drip), Some((4, Sentence::SlowHead)));
    }

    #[test]
    fn a_second_head_is_timed_like_the_first() {
        let mut watch = watch();
        watch.look(Moment { turns: 2, bytes_read: 50, ..Moment::default() });
        let half = |_| Moment { turns: 2, bytes_read: 60, ..Moment::default() };
        assert_eq!(sentence(&mut watch, half), Some((4, Sentence::SlowHead)));
    }

    #[test]
    fn a_connection_between_requests_is_kept_until_it_is_idle() {
        let mut watch = watch();
        let served = |_| Moment { turns: 2, bytes_read: 50, ..Moment::default() };
        assert_eq!(sentence(&mut watch, served), Some((13, Sentence::Idle)));
    }

    #[test]
    fn a_handler_that_takes_its_time_is_left_alone() {
        let working = |_| Moment { in_flight: 1, turns: 1, bytes_read: 50, ..Moment::default() };
        assert_eq!(sentence(&mut watch(), working), None);
    }

    #[test]
    fn a_reader_that_takes_nothing_is_ended_and_one_that_takes_a_byte_is_not() {
        let stuck = |_| Moment { in_flight: 1, turns: 1, answering: 1, bytes_written: 9, ..Moment::default() };
        assert_eq!(sentence(&mut watch(), stuck), Some((9, Sentence::SlowReader)));
        let slow = |tick| Moment { in_flight: 1, turns: 1, answering: 1, bytes_written: tick, ..Moment::default() };
        assert_eq!(sentence(&mut watch(), slow), None);
    }
}
