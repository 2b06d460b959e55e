//! A model of the lock by compare-and-swap. It runs the real decisions of `ifmatch_core::lock`.
//!
//! Clients look at the record, acquire, renew, work and release. Requests and responses take any time, responses get
//! lost, a client that makes no more steps has crashed, and one that makes steps late was stopped. [`LockSabotage`]
//! disables one check: the model checker must then find an interleaving that the check prevents.

use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::lock::{self, Challenge, LockRecord, Observation};
use stateright::{Model, Property};

/// Time to live, in ticks of a second. The margin takes one of them.
const TTL: Duration = Duration::from_secs(3);

/// Number of writes after which a client no longer tries to take the lock.
const MAX_WRITES: u8 = 2;

/// The check that the model disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockSabotage {
    /// None: the unmodified protocol.
    Nothing,
    /// Writes are unconditional.
    PutBlindly,
    /// Records have no random number, and tags are hashes of the bytes.
    OmitNonce,
    /// A challenger takes over at first sight.
    TakeEarly,
    /// A challenger's wait goes on if the version changes.
    KeepTimer,
    /// A challenger counts from before its read.
    ObserveEarly,
    /// A holder's deadline counts from the response.
    CountFromAnswer,
    /// A holder's deadline has no margin.
    OmitMargin,
    /// A new holder keeps the fencing token.
    KeepFence,
    /// The resource accepts any fencing token.
    IgnoreFence,
    /// A conflict after a lost response counts as a loss.
    AssumeNotDone,
    /// A release is unconditional.
    ReleaseBlindly,
}

/// The model's parameters.
#[derive(Clone, Copy, Debug)]
pub struct LockModel {
    /// Number of clients.
    pub clients: usize,
    /// Maximum number of ticks.
    pub ticks: u8,
    /// Maximum number of renewals of each holder.
    pub renewals: u8,
    /// Number of ticks by which the first client's clock may fall behind.
    pub lag: u8,
    /// `true` if holders write to a resource.
    pub work: bool,
    /// The disabled check.
    pub sabotage: LockSabotage,
}

/// The number of a write: the client, and its count of writes.
type Nonce = (usize, u8);
/// The content of the lock's resource.
type Content = (LockRecord, Nonce);

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    content: Option<Content>,
    clients: Vec<Client>,
    tick: u8,
    lag: u8,
    /// Largest fencing token of an acquisition.
    fence: u64,
    /// Largest fencing token that the resource has accepted.
    accepted: u64,
    faults: Faults,
    takeovers: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fault that a property excludes"
)]
struct Faults {
    fence_fell: bool,
    late_write: bool,
    false_loss: bool,
    freed_other: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    step: Step,
    seen: Observation<Content>,
    held: Option<Held>,
    writes: u8,
    renewals: u8,
    /// The fencing token of a write to the resource that is under way.
    flying: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    sent: Timestamp,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// About to read the record.
    Look,
    /// A read that was sent at this time is under way. Only for a client that notes the time: for others, such a read is one
    /// that is sent later.
    Asked(Timestamp),
    /// The response of a read that was sent at this time is under way.
    Looked(Option<Content>, Timestamp),
    /// A write is under way to the server.
    Put(Write),
    /// The response of a write is under way: `true` for success.
    Answer(Write, bool),
    /// About to read the record, since the response was lost.
    Settle(Write),
    Holding,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Write {
    base: Option<Content>,
    content: Content,
    sent: Timestamp,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// A client's next step.
    Step(usize),
    /// A response to a client is lost.
    Lose(usize),
    /// A holder sends a renewal.
    Renew(usize),
    /// A holder sends a release.
    Release(usize),
    /// A holder sends a write to the resource.
    Work(usize),
    /// A write arrives at the resource.
    Deliver(usize),
    /// A second passes.
    Tick,
    /// A second passes, but not for the first client.
    Lag,
}

impl World {
    fn now(&self, at: usize) -> Timestamp {
        let behind = if at == 0 { self.lag } else { 0 };
        Timestamp::from_micros(u64::from(self.tick - behind + 1) * 1_000_000)
    }
}

impl LockModel {
    fn deadline(&self, held: &Held) -> Timestamp {
        match self.sabotage {
            LockSabotage::OmitMargin => held.sent.saturating_add(TTL),
            _ => lock::deadline(held.sent, TTL),
        }
    }

    fn believes(&self, world: &World, at: usize) -> bool {
        world.clients[at]
            .held
            .as_ref()
            .is_some_and(|held| world.now(at) < self.deadline(held))
    }

    /// Returns what the server's tag tells apart.
    fn version(&self, content: &Content) -> Content {
        match self.sabotage {
            LockSabotage::OmitNonce => (content.0.clone(), (0, 0)),
            _ => content.clone(),
        }
    }

    fn look(
        &self,
        world: &mut World,
        at: usize,
        content: Option<Content>,
        asked: Timestamp,
    ) -> Step {
        let now = world.now(at);
        let take = match &content {
            None => true,
            Some(content) => {
                let version = match self.sabotage {
                    LockSabotage::KeepTimer => (LockRecord::default(), (0, 0)),
                    _ => self.version(content),
                };
                let seen = &mut world.clients[at].seen;
                if self.sabotage == LockSabotage::ObserveEarly {
                    let _ = seen.challenge(&content.0, version.clone(), asked);
                }
                seen.challenge(&content.0, version, now) == Challenge::TakeOver
                    || self.sabotage == LockSabotage::TakeEarly
            }
        };
        if !take {
            return Step::Look;
        }
        if world.clients[at].writes >= MAX_WRITES {
            return Step::Done;
        }
        let previous = content.as_ref().map(|(record, _)| record);
        let mut record = LockRecord::taken(previous, "", TTL, Timestamp::from_micros(1));
        if let (LockSabotage::KeepFence, Some(previous)) = (self.sabotage, previous) {
            record.fence = previous.fence;
        }
        Self::put(world, at, content, record)
    }

    fn put(world: &mut World, at: usize, base: Option<Content>, record: LockRecord) -> Step {
        let client = &mut world.clients[at];
        client.writes += 1;
        let content = (record, (at, client.writes));
        Step::Put(Write {
            base,
            content,
            sent: world.now(at),
        })
    }

    /// A write arrives at the server.
    fn arrive(&self, world: &mut World, write: Write) -> Step {
        let blind = match self.sabotage {
            LockSabotage::PutBlindly => true,
            LockSabotage::ReleaseBlindly => !write.content.0.held,
            _ => false,
        };
        let of = |content: &Option<Content>| content.as_ref().map(|content| self.version(content));
        let holds = blind || of(&world.content) == of(&write.base);
        if holds {
            let is_others = |content: &Content| content.0.held && content.1.0 != write.content.1.0;
            world.faults.freed_other |=
                !write.content.0.held && world.content.as_ref().is_some_and(is_others);
            let is_new = write
                .base
                .as_ref()
                .is_none_or(|base| base.0.fence != write.content.0.fence || !base.0.held);
            if is_new && write.content.0.held {
                let fence = write.content.0.fence;
                world.faults.fence_fell |= fence <= world.fence;
                world.fence = world.fence.max(fence);
                world.takeovers += u8::from(write.base.as_ref().is_some_and(|base| base.0.held));
            }
            world.content = Some(write.content.clone());
        }
        Step::Answer(write, holds)
    }

    /// A client learns the end of its write.
    fn learn(&self, world: &mut World, at: usize, write: Write, done: bool) -> Step {
        if !write.content.0.held {
            return Step::Done;
        }
        if done {
            let sent = if self.sabotage == LockSabotage::CountFromAnswer {
                world.now(at)
            } else {
                write.sent
            };
            world.clients[at].held = Some(Held {
                sent,
                content: write.content,
            });
            return Step::Holding;
        }
        if world.clients[at].held.take().is_some() {
            // Another client must have written the record.
            let is_own = world
                .content
                .as_ref()
                .is_some_and(|content| content.1.0 == at && content.0.held);
            world.faults.false_loss |= is_own;
            return Step::Done;
        }
        Step::Look
    }

    fn settle(&self, world: &mut World, at: usize, write: Write) -> Step {
        let is_own = world.content.as_ref() == Some(&write.content);
        let done = is_own && self.sabotage != LockSabotage::AssumeNotDone;
        let current = world.content.as_ref().map(|content| self.version(content));
        if !done && current == write.base.as_ref().map(|base| self.version(base)) {
            // Not carried out yet: the same request again.
            return Step::Put(write);
        }
        self.learn(world, at, write, done)
    }

    fn step(&self, world: &mut World, at: usize) -> Option<()> {
        let next = match world.clients[at].step.clone() {
            Step::Look if self.sabotage == LockSabotage::ObserveEarly => Step::Asked(world.now(at)),
            Step::Look => Step::Looked(world.content.clone(), world.now(at)),
            Step::Asked(asked) => Step::Looked(world.content.clone(), asked),
            Step::Looked(content, asked) => self.look(world, at, content, asked),
            Step::Put(write) => self.arrive(world, write),
            Step::Answer(write, done) => self.learn(world, at, write, done),
            Step::Settle(write) => self.settle(world, at, write),
            Step::Holding if !self.believes(world, at) => {
                world.clients[at].held = None;
                Step::Done
            }
            Step::Holding | Step::Done => return None,
        };
        world.clients[at].step = next;
        Some(())
    }

    /// A holder sends a request: a renewal, a release, or a write to the resource.
    fn send(&self, world: &mut World, event: LockEvent) -> Option<()> {
        let (LockEvent::Renew(at) | LockEvent::Release(at) | LockEvent::Work(at)) = event else {
            return None;
        };
        let believes = self.believes(world, at);
        let client = &mut world.clients[at];
        let content = client.held.as_ref()?.content.clone();
        match event {
            LockEvent::Work(_) if believes && self.work => client.flying = Some(content.0.fence),
            LockEvent::Renew(_) if believes && client.renewals < self.renewals => {
                client.renewals += 1;
                let record = content.0.clone();
                world.clients[at].step = Self::put(world, at, Some(content), record);
            }
            // Its work has ended. A release may be late.
            LockEvent::Release(_) if client.flying.is_none() => {
                client.held = None;
                let record = content.0.released();
                world.clients[at].step = Self::put(world, at, Some(content), record);
            }
            _ => return None,
        }
        Some(())
    }

    fn deliver(&self, world: &mut World, at: usize) -> Option<()> {
        let fence = world.clients[at].flying.take()?;
        if fence >= world.accepted || self.sabotage == LockSabotage::IgnoreFence {
            world.faults.late_write |= fence < world.accepted;
            world.accepted = world.accepted.max(fence);
        }
        Some(())
    }
}

impl Model for LockModel {
    type State = World;
    type Action = LockEvent;

    fn init_states(&self) -> Vec<World> {
        let client = Client {
            step: Step::Look,
            seen: Observation::default(),
            held: None,
            writes: 0,
            renewals: 0,
            flying: None,
        };
        let clients = vec![client; self.clients];
        let faults = Faults::default();
        vec![World {
            content: None,
            clients,
            tick: 0,
            lag: 0,
            fence: 0,
            accepted: 0,
            faults,
            takeovers: 0,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<LockEvent>) {
        for (at, client) in world.clients.iter().enumerate() {
            if client.flying.is_some() {
                actions.push(LockEvent::Deliver(at));
            }
            match client.step {
                Step::Done => {}
                Step::Holding => {
                    actions.push(LockEvent::Step(at));
                    actions.extend([
                        LockEvent::Renew(at),
                        LockEvent::Release(at),
                        LockEvent::Work(at),
                    ]);
                }
                Step::Answer(..) => actions.extend([LockEvent::Step(at), LockEvent::Lose(at)]),
                _ => actions.push(LockEvent::Step(at)),
            }
        }
        if world.tick < self.ticks {
            actions.push(LockEvent::Tick);
            if world.lag < self.lag {
                actions.push(LockEvent::Lag);
            }
        }
    }

    fn next_state(&self, last: &World, event: LockEvent) -> Option<World> {
        let mut world = last.clone();
        match event {
            LockEvent::Step(at) => self.step(&mut world, at)?,
            LockEvent::Lose(at) => {
                let Step::Answer(write, _) = last.clients[at].step.clone() else {
                    return None;
                };
                world.clients[at].step = Step::Settle(write);
            }
            LockEvent::Renew(_) | LockEvent::Release(_) | LockEvent::Work(_) => {
                self.send(&mut world, event)?;
            }
            LockEvent::Deliver(at) => self.deliver(&mut world, at)?,
            LockEvent::Tick => world.tick += 1,
            LockEvent::Lag => (world.tick, world.lag) = (world.tick + 1, world.lag + 1),
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one holder", |model: &Self, world: &World| {
                (0..world.clients.len())
                    .filter(|at| model.believes(world, *at))
                    .count()
                    <= 1
            }),
            Property::always("fencing tokens grow", |_, world: &World| {
                !world.faults.fence_fell
            }),
            Property::always("no late write", |_, world: &World| !world.faults.late_write),
            Property::always("a release frees its own lock", |_, world: &World| {
                !world.faults.freed_other
            }),
            Property::always("no false loss", |_, world: &World| !world.faults.false_loss),
            Property::sometimes("a lock is taken over", |_, world: &World| {
                world.takeovers > 0
            }),
        ]
    }
}
