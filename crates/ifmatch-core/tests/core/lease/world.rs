//! A record, the time, and shorthands for commands.

use std::time::Duration;

use http::Method;
use ifmatch_core::command::{
    Authority, Begin, Command, Commit, Content, Grant, LeaseOperation, Outcome, Refusal, Write,
};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::{
    BreakPeriod, LeaseAction, LeaseDuration, LeaseId, LeaseReceipt, LeaseUse,
};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, RequestId, Token};

pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
pub(crate) const TTL: Duration = Duration::from_secs(120);

/// A resource and the current time. Successful commands change the resource.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) record: Record,
    pub(crate) now: Timestamp,
}

impl World {
    /// Creates a resource that exists.
    pub(crate) fn new() -> Self {
        let mut world = Self {
            record: Record::absent(),
            now: START,
        };
        world.write(LeaseUse::Write(None)).unwrap();
        world
    }

    /// Creates a resource in a state such as `Leased(A)`, reached by commands and time: 29 s are left of a lease of 30, 19 of one
    /// that is being broken.
    pub(crate) fn in_state(text: &str) -> Self {
        let mut world = Self::new();
        let (state, holder) = text
            .strip_suffix(')')
            .and_then(|text| text.split_once('('))
            .unwrap_or((text, "A"));
        let duration =
            LeaseDuration::from_seconds(if state == "Infinite" { -1 } else { 30 }).unwrap();
        if state != "Available" {
            world
                .lease(LeaseAction::Acquire {
                    id: id(holder),
                    duration,
                    holder: None,
                })
                .unwrap();
        }
        match state {
            "Breaking" => {
                world
                    .lease(LeaseAction::Break {
                        period: BreakPeriod::from_seconds(20),
                        token: None,
                    })
                    .unwrap();
            }
            "Broken" => {
                world
                    .lease(LeaseAction::Break {
                        period: BreakPeriod::from_seconds(0),
                        token: None,
                    })
                    .unwrap();
            }
            "Expired" => world.pass(30.0),
            "Available" | "Leased" | "Infinite" => {}
            other => panic!("no such state: {other}"),
        }
        world.pass(1.0);
        world
    }

    /// Advances the time.
    pub(crate) fn pass(&mut self, seconds: f64) {
        self.now = self.now.saturating_add(Duration::from_secs_f64(seconds));
    }

    /// Returns the state, for example `Leased(A)`.
    pub(crate) fn state(&self) -> String {
        let state = self.record.lease_state(self.now);
        let holder = self
            .record
            .lease()
            .map(|lease| format!("({})", name(lease.id())));
        format!(
            "{state:?}{}",
            holder
                .filter(|_| state.name() != "available")
                .unwrap_or_default()
        )
    }

    pub(crate) fn apply(&mut self, command: &Command<'_>) -> Result<Outcome, Refusal> {
        let transition = self.record.apply(command, self.now);
        if let Outcome::Refused(refusal) = transition.outcome {
            assert_eq!(transition.next, None, "a refused command changes nothing");
            return Err(refusal);
        }
        if let Some(next) = transition.next {
            assert!(next.revision() > self.record.revision());
            assert_eq!(Record::decode(&next.encode()).as_ref(), Ok(&next));
            self.record = next;
        }
        Ok(transition.outcome)
    }

    pub(crate) fn lease(&mut self, action: LeaseAction) -> Result<LeaseReceipt, Refusal> {
        self.lease_by(action, None)
    }

    /// Applies a lease operation with a client request id.
    pub(crate) fn lease_by(
        &mut self,
        action: LeaseAction,
        request: Option<&str>,
    ) -> Result<LeaseReceipt, Refusal> {
        let operation = LeaseOperation::new(action, &Preconditions::NONE, 1)
            .with_authority(Authority::Register)
            .with_request(request.map(|request| RequestId::of(&[request.as_bytes()])));
        match self.apply(&Command::Lease(operation))? {
            Outcome::Leased(receipt) => Ok(receipt),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn acquire(&mut self, holder: &str, seconds: i64) -> Result<LeaseReceipt, Refusal> {
        self.lease(LeaseAction::Acquire {
            id: id(holder),
            duration: LeaseDuration::from_seconds(seconds).unwrap(),
            holder: None,
        })
    }

    /// Writes in one step.
    pub(crate) fn write(&mut self, lease: LeaseUse) -> Result<Outcome, Refusal> {
        self.put(&Method::PUT, lease, hashed())
    }

    /// Deletes in one step.
    pub(crate) fn delete(&mut self, lease: LeaseUse) -> Result<Outcome, Refusal> {
        self.put(&Method::DELETE, lease, Content::Absent)
    }

    fn put(
        &mut self,
        method: &Method,
        lease: LeaseUse,
        content: Content,
    ) -> Result<Outcome, Refusal> {
        let preconditions = &Preconditions::default();
        let write = Write::new(method, preconditions, content, 1).with_lease(lease);
        self.apply(&Command::Write(write))
    }

    /// Starts a write through a service.
    pub(crate) fn begin(&mut self, lease: LeaseUse) -> Result<Grant, Refusal> {
        let begin = Begin::new(&Method::PUT, &Preconditions::NONE, 1, TTL)
            .with_lease(lease)
            .with_authority(Authority::Register);
        match self.apply(&Command::Begin(begin))? {
            Outcome::Granted(grant) => Ok(grant),
            other => panic!("{other:?}"),
        }
    }

    /// Ends a write that took effect.
    pub(crate) fn commit(&mut self, token: Token, content: Content) -> Result<Outcome, Refusal> {
        self.apply(&Command::Commit(Commit::new(token, content)))
    }
}

pub(crate) fn hashed() -> Content {
    Content::Hashed {
        hash: ContentHash::of(b"bytes"),
        payload: b"payload".to_vec().into(),
    }
}

/// Returns the id for a letter.
pub(crate) fn id(name: &str) -> LeaseId {
    let letter = name.as_bytes()[0];
    assert!(
        letter.is_ascii_uppercase() && name.len() == 1,
        "{name} is no name"
    );
    LeaseId::from_random([letter; 16])
}

fn name(id: LeaseId) -> char {
    let names = ('A'..='Z').find(|name| self::id(&name.to_string()) == id);
    names.unwrap_or_else(|| panic!("{id} has no name"))
}

/// Returns Azure's code of a refusal, for a blob.
pub(crate) fn code(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Lease(failure) => failure.blob_code(),
        Refusal::LeaseConflict(conflict) => conflict.code(),
        other => panic!("{other:?}"),
    }
}
