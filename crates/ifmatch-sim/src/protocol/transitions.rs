//! The model's possible events, their effect, and its properties.

use std::time::Duration;

use ifmatch_core::command::{Authority, Begin, Command, Commit, Content, Doubt, Outcome, Refusal};
use ifmatch_core::record::{Record, Variant};
use stateright::{Model, Property};

use super::actor::{Actor, Bytes, End, Grant, METHOD, Seen, Step, Task, observed, tag};
use super::lease::lease_use;
use super::{Fault, Leases, Protocol, Sabotage, TICK, World, without_permit};

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// An actor takes its next step.
    Step(usize),
    /// The service refuses an actor's write, or fails without an effect.
    Refuse(usize),
    /// An actor's write fails at the service. The flag is `true` if it took effect before.
    Fail(usize, bool),
    /// An actor crashes.
    Crash(usize),
    /// Time passes.
    Tick,
}

impl Protocol {
    /// Runs the next step of an actor. Returns `None` if there is none.
    fn step(&self, world: &mut World, at: usize) -> Option<()> {
        let actor = world.actors[at].clone();
        let next = match actor.step.clone() {
            Step::LoadForRead => self
                .recall(world, &actor)
                .unwrap_or_else(|| Step::Read(world.register.snapshot(world.now()))),
            Step::Read(snapshot) => {
                if actor.task == Task::Edit {
                    world.actors[at].base = world.bytes;
                }
                Step::LoadToObserve(snapshot, world.bytes)
            }
            Step::LoadToObserve(snapshot, bytes) => {
                Step::Observe(Box::new(world.register.clone()), snapshot, bytes)
            }
            Step::Observe(loaded, snapshot, bytes) => {
                self.observe(world, at, &loaded, snapshot, bytes)
            }
            Step::LoadToBegin(seen) => Step::Begin(Box::new(world.register.clone()), seen),
            Step::Begin(loaded, seen) => self.begin(world, at, &loaded, seen)?,
            Step::Probe(snapshot) => Step::LoadToBegin(snapshot.map(|snapshot| Seen {
                snapshot,
                bytes: world.bytes,
            })),
            Step::Write(grant) => {
                self.write(world, at, grant)?;
                Step::LoadToEnd(grant, End::Commit)
            }
            Step::LoadToEnd(grant, end) => Step::End(Box::new(world.register.clone()), grant, end),
            Step::End(loaded, grant, end) => self.end(world, at, &loaded, grant, end),
            Step::LoadToLease(operation, seen) => {
                Step::Lease(Box::new(world.register.clone()), operation, seen)
            }
            Step::Lease(loaded, operation, seen) => {
                self.lease(world, at, &loaded, operation, seen)?
            }
            Step::ProbeToLease(operation, snapshot) => {
                let seen = snapshot.map(|snapshot| Seen {
                    snapshot,
                    bytes: world.bytes,
                });
                Step::LoadToLease(operation, seen)
            }
            Step::Done | Step::Crashed => return None,
        };
        world.actors[at].step = next;
        Some(())
    }

    /// Runs a reader's second read, from memory if the record confirms its content.
    fn recall(&self, world: &mut World, actor: &Actor) -> Option<Step> {
        let (generation, bytes) = actor.memory?;
        let settled = world.register.settled(world.now())?;
        if self.authority != Authority::Register || settled.generation() != generation {
            return None;
        }
        world.wrong_tag |= bytes != world.bytes;
        Some(Step::Done)
    }

    fn observe(
        &self,
        world: &mut World,
        at: usize,
        loaded: &Record,
        snapshot: Option<ifmatch_core::record::Snapshot>,
        bytes: Bytes,
    ) -> Step {
        let snapshot = match self.sabotage {
            Sabotage::ObserveLate => loaded.snapshot(world.now()),
            _ => snapshot,
        };
        let done = match world.actors[at].task {
            Task::Read if world.actors[at].memory.is_none() => Step::LoadForRead,
            Task::Read => Step::Done,
            _ => Step::LoadToBegin(None),
        };
        let Some(snapshot) = snapshot else {
            return if done == Step::LoadForRead {
                Step::Done
            } else {
                done
            };
        };
        let command = Command::Observe(observed(snapshot, bytes, self.authority));
        let transition = loaded.apply(&command, world.now());
        if !self.swap(world, loaded, transition.next.clone()) {
            return Step::LoadToObserve(Some(snapshot), bytes);
        }
        if transition.outcome == Outcome::Observed {
            let version = transition
                .next
                .as_ref()
                .unwrap_or(loaded)
                .settled(world.now());
            world.actors[at].memory = version.map(|version| (version.generation(), bytes));
        }
        if world.actors[at].memory.is_none() && done == Step::LoadForRead {
            Step::Done
        } else {
            done
        }
    }

    fn begin(
        &self,
        world: &mut World,
        at: usize,
        loaded: &Record,
        seen: Option<Seen>,
    ) -> Option<Step> {
        let now = world.now();
        let seen = match (self.sabotage, seen) {
            (Sabotage::TrustOldProbes, Some(seen)) => loaded
                .snapshot(now)
                .map(|snapshot| Seen { snapshot, ..seen }),
            (_, seen) => seen,
        };
        let preconditions = world.actors[at].preconditions();
        let begin = Command::Begin(
            Begin::new(
                &METHOD,
                &preconditions,
                at as u64,
                Duration::from_micros(TICK) * u32::from(self.permit),
            )
            .with_lease(lease_use(&world.actors[at], at, self.sabotage))
            .with_observed(seen.map(|seen| observed(seen.snapshot, seen.bytes, self.authority)))
            .with_authority(self.authority),
        );
        let blind = (self.sabotage == Sabotage::IgnorePermits)
            .then(|| without_permit(loaded, now))
            .flatten();
        let transition = blind.as_ref().unwrap_or(loaded).apply(&begin, now);
        Some(match transition.outcome {
            Outcome::Granted(grant) => {
                if !self.swap(world, loaded, transition.next) {
                    return Some(Step::LoadToBegin(seen));
                }
                let lease_end = world.actors[at].held.map(|held| held.end);
                Step::Write(Grant {
                    token: grant.token,
                    deadline: grant.deadline,
                    lease_end,
                })
            }
            Outcome::Refused(Refusal::ProbeFirst) => Step::Probe(loaded.snapshot(now)),
            // Waits: nothing happens until another one's step or the clock changes the record.
            Outcome::Refused(Refusal::InFlight { .. }) if world.register == *loaded => return None,
            Outcome::Refused(Refusal::InFlight { .. }) => Step::LoadToBegin(None),
            _ => Step::Done,
        })
    }

    fn write(&self, world: &mut World, at: usize, grant: Grant) -> Option<()> {
        if grant.deadline <= world.now() && self.sabotage != Sabotage::NeverCancel {
            return None;
        }
        world.note_effect(at, grant);
        let actor = &world.actors[at];
        world.lost_update |= !actor.may_follow(world.bytes);
        world.created += u8::from(actor.task == Task::Create);
        world.bytes = Some(u8::try_from(at).ok()?);
        Some(())
    }

    fn end(&self, world: &mut World, at: usize, loaded: &Record, grant: Grant, end: End) -> Step {
        let end = if self.sabotage == Sabotage::AssumeNotDone && end == End::Doubt {
            End::Abort
        } else {
            end
        };
        let command = match end {
            End::Commit => {
                let tag = tag(u8::try_from(at).unwrap_or_default());
                Command::Commit(Commit::new(
                    grant.token,
                    Content::Tagged {
                        variant: Variant::only(),
                        tag,
                    },
                ))
            }
            End::Abort => Command::Abort(grant.token),
            End::Doubt => Command::Doubt(Doubt::new(grant.token, Duration::ZERO)),
        };
        let transition = loaded.apply(&command, world.now());
        if !self.swap(world, loaded, transition.next) {
            return Step::LoadToEnd(grant, end);
        }
        let recorded = matches!(transition.outcome, Outcome::Written(_));
        world.committed += u8::from(recorded);
        if recorded {
            world.note_record(at, grant);
        }
        world.actors[at].after_write()
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            register: Record::unknown(),
            bytes: self.bytes,
            actors: self.tasks.iter().map(|task| Actor::new(*task)).collect(),
            tick: 0,
            crashes: 0,
            lost_update: false,
            wrong_tag: false,
            created: 0,
            committed: 0,
            leases: Leases::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Event>) {
        for (at, actor) in world.actors.iter().enumerate() {
            let gone = matches!(actor.step, Step::Done | Step::Crashed);
            if !gone {
                actions.push(Event::Step(at));
            }
            if matches!(actor.step, Step::Write(_)) {
                actions.extend([
                    Event::Refuse(at),
                    Event::Fail(at, false),
                    Event::Fail(at, true),
                ]);
            }
            let writes = matches!(
                actor.step,
                Step::Write(_) | Step::LoadToEnd(..) | Step::End(..)
            );
            if writes && world.crashes < self.crashes {
                actions.push(Event::Crash(at));
            }
        }
        if world.tick < self.ticks {
            actions.push(Event::Tick);
        }
    }

    fn next_state(&self, last: &World, event: Event) -> Option<World> {
        let mut world = last.clone();
        match event {
            Event::Step(at) => self.step(&mut world, at)?,
            Event::Refuse(at) | Event::Fail(at, _) => {
                let Step::Write(grant) = last.actors[at].step else {
                    return None;
                };
                if event == Event::Fail(at, true) {
                    self.write(&mut world, at, grant)?;
                }
                let end = if event == Event::Refuse(at) {
                    End::Abort
                } else {
                    End::Doubt
                };
                world.actors[at].step = Step::LoadToEnd(grant, end);
            }
            Event::Crash(at) => {
                world.actors[at].step = Step::Crashed;
                world.crashes += 1;
            }
            Event::Tick => world.tick += 1,
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no lost update", |_, world: &World| !world.lost_update),
            Property::always("at most one creator", |_, world: &World| world.created <= 1),
            Property::always("no tag on other bytes", |model: &Self, world: &World| {
                let settled = world.register.settled(world.now());
                let relied_on = settled.filter(|_| model.authority == Authority::Register);
                let right = |version: &ifmatch_core::record::Version| {
                    version
                        .tags()
                        .iter()
                        .all(|known| world.bytes.is_some_and(|bytes| tag(bytes) == *known))
                };
                !world.wrong_tag && relied_on.is_none_or(right)
            }),
            Property::always("no two holders", |_, world: &World| {
                world.holders().count() <= 1
            }),
            Property::always("no write against a lease", |_, world: &World| {
                world.leases.are_free_of(Fault::BesideHolder)
            }),
            Property::always("no write outlives its lease", |_, world: &World| {
                world.leases.are_free_of(Fault::OutlivedLease)
            }),
            Property::always("no write recorded against a lease", |_, world: &World| {
                world.leases.are_free_of(Fault::RecordedLate)
            }),
            Property::always("who renews missed no write", |_, world: &World| {
                world.leases.are_free_of(Fault::MissedWrite)
            }),
            Property::always("fencing tokens grow", |_, world: &World| {
                world.leases.are_free_of(Fault::TokenFell)
            }),
            Property::sometimes("a write is committed", |_, world: &World| {
                world.committed > 0
            }),
            Property::sometimes("all end", |_, world: &World| {
                world
                    .actors
                    .iter()
                    .all(|actor| matches!(actor.step, Step::Done | Step::Crashed))
            }),
        ]
    }
}
