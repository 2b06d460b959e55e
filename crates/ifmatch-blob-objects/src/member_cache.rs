//! Recent responses of the register about containers.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ifmatch_blob::name::ContainerName;
use ifmatch_core::date::Timestamp;

use crate::container_state::{ContainerMembers, ContainerState, LiveContainer};

/// Time for which a write may rely on a response about its container, counted from before the request.
const TRUST_FOR_WRITES: Duration = Duration::from_secs(1);
/// Age at which no process relies on a response any more, provided that its clock has lost less than half a second
/// since. `ifmatch_sim::container` checks this.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_millis(1_500);
/// Maximum number of containers remembered.
const CAPACITY: usize = 1_000;

/// The register's responses about containers, for as long as reads may reuse them.
pub(crate) struct MemberCache {
    lasts: Duration,
    responses: Mutex<Responses>,
}

/// The latest responses, and the number of questions asked.
#[derive(Default)]
struct Responses {
    containers: HashMap<ContainerName, ContainerResponse>,
    /// Number of the latest request.
    questions: u64,
}

/// The latest response about a container.
#[derive(Clone, Copy, Default)]
struct ContainerResponse {
    members: Option<ContainerMembers>,
    question: RegisterQuestion,
    /// The container, if it existed.
    home: Option<LiveContainer>,
    /// The register isn't asked again before this time, because it didn't respond.
    paused: Option<Timestamp>,
}

/// A request to the register.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegisterQuestion {
    number: u64,
    at: Timestamp,
}

/// The responses about a container that a read can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedMembers {
    /// A recent response.
    Recent(ContainerMembers),
    /// The register failed to respond a moment ago. The latest response, if any, may be outdated.
    Paused(Option<ContainerMembers>),
    /// The register has to be asked. The latest response, if any, may be outdated.
    Old(Option<ContainerMembers>),
}

impl MemberCache {
    pub(crate) fn new(lasts: Duration) -> Self {
        Self {
            lasts,
            responses: Mutex::default(),
        }
    }

    /// Returns `true` if reads reuse responses.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.lasts.is_zero()
    }

    /// Returns the knowledge about a container.
    pub(crate) fn recall(&self, container: &ContainerName, now: Timestamp) -> CachedMembers {
        let answer = self
            .responses()
            .containers
            .get(container)
            .copied()
            .unwrap_or_default();
        match answer.members {
            // The next creation invalidates it.
            Some(members)
                if members != ContainerMembers::NONE
                    && now < answer.question.at.saturating_add(self.lasts) =>
            {
                CachedMembers::Recent(members)
            }
            known if answer.paused.is_some_and(|until| now < until) => CachedMembers::Paused(known),
            known => CachedMembers::Old(known),
        }
    }

    /// Returns a container that wasn't yet deleted a moment ago, for a write. Its deletion waits until no process remembers it
    /// ([`FORGOTTEN_AFTER`]).
    pub(crate) fn home(&self, container: &ContainerName, now: Timestamp) -> Option<LiveContainer> {
        let answer = self.responses().containers.get(container).copied()?;
        answer
            .home
            .filter(|_| now < answer.question.at.saturating_add(TRUST_FOR_WRITES))
    }

    /// Begins a question to the register.
    pub(crate) fn ask(&self, now: Timestamp) -> RegisterQuestion {
        let mut responses = self.responses();
        responses.questions += 1;
        RegisterQuestion {
            number: responses.questions,
            at: now,
        }
    }

    /// Stores the response to a question, unless a later one was answered before.
    pub(crate) fn keep(
        &self,
        container: &ContainerName,
        question: RegisterQuestion,
        registered: ContainerState,
    ) {
        self.change(container, |answer| {
            if question.number > answer.question.number {
                let home = match registered {
                    ContainerState::Known(home) => Some(home),
                    ContainerState::Closing(..)
                    | ContainerState::Deleting(_)
                    | ContainerState::Gone(_) => None,
                };
                *answer = ContainerResponse {
                    members: Some(registered.members()),
                    question,
                    home,
                    paused: None,
                };
            }
        });
    }

    /// Notes that the register didn't respond. It isn't asked again for as long as a response lasts.
    pub(crate) fn pause(&self, container: &ContainerName, now: Timestamp) {
        let until = now.saturating_add(self.lasts);
        self.change(container, |answer| answer.paused = Some(until));
    }

    fn change(&self, container: &ContainerName, change: impl FnOnce(&mut ContainerResponse)) {
        if !self.is_enabled() {
            return;
        }
        let containers = &mut self.responses().containers;
        if containers.len() >= CAPACITY && !containers.contains_key(container) {
            containers.clear();
        }
        change(containers.entry(container.clone()).or_default());
    }

    fn responses(&self) -> MutexGuard<'_, Responses> {
        self.responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemberCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberCache")
            .field("lasts", &self.lasts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ifmatch_core::record::Revision;

    use super::*;

    const LASTS: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn since(revision: u64) -> ContainerMembers {
        ContainerMembers::since(Revision::new(revision))
    }

    fn gone(revision: u64) -> ContainerState {
        ContainerState::Gone(Revision::new(revision))
    }

    fn container() -> ContainerName {
        ContainerName::new("c").expect("a valid name")
    }

    #[test]
    fn an_answer_lasts_and_then_replaces_a_register_that_does_not_answer() {
        let (cache, c) = (MemberCache::new(LASTS), container());
        assert_eq!(cache.recall(&c, at(0)), CachedMembers::Old(None));
        cache.keep(&c, cache.ask(at(1)), gone(7));
        assert_eq!(cache.recall(&c, at(5)), CachedMembers::Recent(since(7)));
        assert_eq!(cache.recall(&c, at(6)), CachedMembers::Old(Some(since(7))));
        let late = cache.ask(at(6));
        cache.pause(&c, at(7));
        assert_eq!(
            cache.recall(&c, at(11)),
            CachedMembers::Paused(Some(since(7)))
        );
        assert_eq!(cache.recall(&c, at(12)), CachedMembers::Old(Some(since(7))));
        cache.keep(&c, late, gone(8));
        assert_eq!(
            cache.recall(&c, at(10)),
            CachedMembers::Recent(since(8)),
            "the late answer ends the pause"
        );
        assert_eq!(
            cache.recall(&c, at(11)),
            CachedMembers::Old(Some(since(8))),
            "its age counts from the question"
        );
    }

    #[test]
    fn answers_that_are_overtaken_are_not_stored() {
        let (cache, c) = (MemberCache::new(LASTS), container());
        let (earlier, later) = (cache.ask(at(1)), cache.ask(at(2)));
        cache.keep(&c, later, gone(2));
        cache.keep(&c, earlier, gone(1));
        assert_eq!(cache.recall(&c, at(3)), CachedMembers::Recent(since(2)));
        let before = cache.ask(at(3));
        cache.keep(&c, cache.ask(at(3)), ContainerState::Deleting(at(9)));
        cache.keep(&c, before, gone(2));
        assert_eq!(
            cache.recall(&c, at(3)),
            CachedMembers::Old(Some(ContainerMembers::NONE)),
            "the deletion began after the question"
        );
    }

    #[test]
    fn a_deletion_is_never_recent() {
        let (cache, c) = (MemberCache::new(LASTS), container());
        cache.keep(&c, cache.ask(at(1)), ContainerState::Deleting(at(9)));
        assert_eq!(
            cache.recall(&c, at(1)),
            CachedMembers::Old(Some(ContainerMembers::NONE))
        );
    }

    #[test]
    fn a_write_relies_on_a_container_for_a_moment() {
        let (cache, c) = (MemberCache::new(LASTS), container());
        let home = LiveContainer {
            incarnation: Revision::new(7),
            since: Revision::new(7),
        };
        cache.keep(&c, cache.ask(at(1)), ContainerState::Known(home));
        assert_eq!(cache.home(&c, at(1)), Some(home));
        assert_eq!(
            cache.home(&c, at(2)),
            None,
            "its age counts from the question"
        );
        cache.keep(&c, cache.ask(at(2)), ContainerState::Known(home));
        cache.keep(&c, cache.ask(at(2)), ContainerState::Deleting(at(9)));
        assert_eq!(
            cache.home(&c, at(2)),
            None,
            "the deletion began after the question"
        );
        assert!(FORGOTTEN_AFTER > TRUST_FOR_WRITES);
    }

    #[test]
    fn without_a_time_nothing_is_stored() {
        let (cache, c) = (MemberCache::new(Duration::ZERO), container());
        cache.keep(&c, cache.ask(at(1)), gone(1));
        cache.pause(&c, at(1));
        assert_eq!(cache.recall(&c, at(1)), CachedMembers::Old(None));
    }
}
