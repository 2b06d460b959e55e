//! A model of groups: the processes of one register combine the changes that wait into one swap. It runs the real
//! `Record::apply_group`.
//!
//! Clients send a change each to their process. A process takes all that wait, loads the record, swaps, and responds.
//! Responses to swaps get lost, swaps arrive late, processes crash and start again, and clients without a response send
//! their change again. [`GroupSabotage`] disables one check: the model checker must then find an interleaving that the
//! check prevents.

use http::Method;
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Command, Content, Outcome, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::group::Change;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, RequestId, Revision};
use ifmatch_core::tag::TagList;
use stateright::{Model, Property};

/// The check that the model disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupSabotage {
    /// None: the unmodified protocol.
    Nothing,
    /// The register ignores the expected revision.
    SwapBlindly,
    /// The responses of a group go out before its swap.
    AnswerFirst,
    /// The refusals of a group go out before its swap.
    RefuseFirst,
    /// A group isn't applied in order of arrival.
    Reorder,
    /// A group forgets its first responses.
    ForgetAnswers,
    /// An unacknowledged swap counts as not done.
    AssumeNotDone,
    /// An unacknowledged swap counts as not done once another process has swapped.
    RepeatOvertaken,
}

/// A client's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupTask {
    /// Writes without a condition.
    Overwrite,
    /// Writes with `If-None-Match: *`.
    Create,
    /// Writes with `If-Match` and the tag of the first version.
    Edit,
}

/// The model's parameters.
#[derive(Clone, Debug)]
pub struct GroupModel {
    /// The task of each client, and its process.
    pub clients: Vec<(GroupTask, usize)>,
    /// `true` if there is a version in the beginning.
    pub exists: bool,
    /// `true` if changes carry a name, by which a process knows a retry.
    pub named: bool,
    /// `true` if all clients have sent their change in the beginning, in order.
    pub sent: bool,
    /// Maximum number of unacknowledged swaps.
    pub losses: u8,
    /// Maximum number of crashes.
    pub crashes: u8,
    /// The disabled check.
    pub sabotage: GroupSabotage,
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    register: Record,
    processes: Vec<Process>,
    clients: Vec<Client>,
    /// Swaps that arrive late, if ever.
    late: Vec<Swap>,
    losses: u8,
    crashes: u8,
    /// The clients whose changes took effect, in order, each with its revision.
    log: Vec<(usize, Revision)>,
    faults: Faults,
    largest_group: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Faults {
    lost_update: bool,
    false_answer: bool,
    false_refusal: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    queue: Vec<usize>,
    group: Vec<usize>,
    step: Step,
    /// The unacknowledged swaps of this group.
    ambiguous: Vec<Swap>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Step {
    #[default]
    Idle,
    /// About to load the record.
    Load,
    /// About to swap.
    Swap(Box<Record>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Swap {
    expected: Revision,
    next: Record,
    effects: Vec<Effect>,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Effect {
    Written { client: usize, generation: Revision },
    Replayed { client: usize, generation: Revision },
    Refused { client: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    state: ClientState,
    tries: u8,
    /// Order of arrival in its process.
    arrival: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ClientState {
    New,
    Sent,
    /// Has a response.
    Told,
    /// Knows no response.
    Unsure,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// A client sends its change, or sends it again.
    Send(usize),
    /// A process's next step.
    Step(usize),
    /// A process's swap gets no response. The flag is `true` if it took place at once; otherwise it may do so later.
    Lose(usize, bool),
    /// A late swap arrives.
    Arrive(usize),
    /// A process crashes, and starts again.
    Crash(usize),
}

/// A client's change.
struct ClientChange {
    preconditions: Preconditions,
    client: usize,
    request: Option<RequestId>,
}

/// A time at which nothing expires.
const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);
/// The client number of the version in the beginning.
const NOBODY: usize = 99;

impl Change for ClientChange {
    type Error = std::convert::Infallible;
    type Context = ();

    fn command(&self, _: &Record, _: Timestamp, (): &mut ()) -> Result<Command<'_>, Self::Error> {
        let content = Content::Hashed {
            hash: ContentHash::of(&self.client.to_le_bytes()),
            payload: Vec::new().into(),
        };
        let write = Write::new(
            &Method::PUT,
            &self.preconditions,
            content,
            self.client as u64,
        );
        Ok(Command::Write(write.with_request(self.request)))
    }
}

impl GroupModel {
    fn first(&self) -> Record {
        let write = ClientChange {
            preconditions: Preconditions::NONE,
            client: NOBODY,
            request: None,
        };
        let earlier = Timestamp::from_micros(1_000_000);
        let first = Record::absent().apply_group([&write], earlier, ()).next;
        if self.exists {
            first.unwrap_or_else(Record::absent)
        } else {
            Record::absent()
        }
    }

    fn change(&self, client: usize) -> ClientChange {
        let tag = self
            .first()
            .state(NOW)
            .version()
            .and_then(|version| version.tags().first().cloned());
        let preconditions = match self.clients[client].0 {
            GroupTask::Overwrite => Preconditions::NONE,
            GroupTask::Create => Preconditions::absent(),
            GroupTask::Edit => {
                let tags: Vec<EntityTag> = tag.into_iter().collect();
                Preconditions {
                    if_match: Some(TagList::Tags(tags)),
                    ..Preconditions::NONE
                }
            }
        };
        let request = self.named.then(|| RequestId::of(&[&client.to_le_bytes()]));
        ClientChange {
            preconditions,
            client,
            request,
        }
    }

    /// Applies the group of a process to a record.
    fn propose(&self, process: &Process, loaded: &Record) -> (Vec<Effect>, Option<Record>) {
        let mut clients = process.group.clone();
        if self.sabotage == GroupSabotage::Reorder {
            clients.reverse();
        }
        let changes: Vec<ClientChange> =
            clients.iter().map(|client| self.change(*client)).collect();
        if self.sabotage == GroupSabotage::ForgetAnswers {
            let (mut record, mut effects, mut now) = (loaded.clone(), Vec::new(), NOW);
            for change in &changes {
                now = now.saturating_add(Record::REPLY_TIME);
                let Ok(command) = change.command(&record, now, &mut ());
                let transition = record.apply(&command, now);
                effects.push(effect(change.client, &transition.outcome));
                record = transition.next.unwrap_or(record);
            }
            return (
                effects,
                Some(record).filter(|record| record.revision() != loaded.revision()),
            );
        }
        let group = loaded.apply_group(&changes, NOW, ());
        let outcomes = group
            .applied
            .iter()
            .flatten()
            .map(|applied| &applied.outcome);
        (
            clients
                .iter()
                .zip(outcomes)
                .map(|(client, outcome)| effect(*client, outcome))
                .collect(),
            group.next,
        )
    }

    /// A swap arrives at the register. Returns `true` if it takes place.
    fn arrive(&self, world: &mut World, swap: &Swap) -> bool {
        let done = world.register.revision() == swap.expected
            || self.sabotage == GroupSabotage::SwapBlindly;
        if done {
            world.register = swap.next.clone();
            for effect in &swap.effects {
                let Effect::Written { client, generation } = effect else {
                    continue;
                };
                let conditional = self.clients[*client].0 != GroupTask::Overwrite;
                world.faults.lost_update |= conditional && !world.log.is_empty();
                world.log.push((*client, *generation));
            }
        }
        done
    }

    /// A process responds to the clients of its group.
    fn answer(world: &mut World, effects: &[Effect]) {
        for effect in effects {
            let client = match effect {
                Effect::Written { client, generation }
                | Effect::Replayed { client, generation } => {
                    world.faults.false_answer |= !world.log.contains(&(*client, *generation));
                    client
                }
                Effect::Refused { client } => {
                    // Its condition was true before any other change.
                    world.faults.false_refusal |= world.log.is_empty();
                    client
                }
            };
            world.clients[*client].state = ClientState::Told;
        }
    }

    fn finish(world: &mut World, at: usize, effects: &[Effect]) {
        Self::answer(world, effects);
        let Process {
            group,
            step,
            ambiguous,
            ..
        } = &mut world.processes[at];
        (*step, *group, *ambiguous) = (Step::Idle, Vec::new(), Vec::new());
    }

    /// The clients of a group without a response know nothing.
    fn give_up(world: &mut World, clients: Vec<usize>) {
        for client in clients {
            let state = &mut world.clients[client].state;
            if *state == ClientState::Sent {
                *state = ClientState::Unsure;
            }
        }
    }

    fn step(&self, world: &mut World, at: usize) -> Option<()> {
        let process = world.processes[at].clone();
        match process.step.clone() {
            Step::Idle => {
                if process.queue.is_empty() {
                    return None;
                }
                world.largest_group = world.largest_group.max(process.queue.len());
                let process = &mut world.processes[at];
                process.group = std::mem::take(&mut process.queue);
                process.step = Step::Load;
            }
            Step::Load => self.load(world, at, &process),
            Step::Swap(loaded) => {
                let swap = self.swap(&process, &loaded)?;
                if self.arrive(world, &swap) {
                    Self::finish(world, at, &swap.effects);
                } else {
                    world.processes[at].step = Step::Load;
                }
            }
        }
        Some(())
    }

    /// Looks for the effect of earlier swaps, and proposes the next one.
    fn load(&self, world: &mut World, at: usize, process: &Process) {
        let Process {
            group, ambiguous, ..
        } = process;
        if let Some(swap) = ambiguous.iter().find(|swap| swap.next == world.register) {
            return Self::finish(world, at, &swap.effects);
        }
        let is_later = |swap: &Swap| swap.expected != world.register.revision();
        let is_overtaken = ambiguous.iter().any(is_later)
            && !matches!(self.sabotage, GroupSabotage::RepeatOvertaken);
        let loaded = world.register.clone();
        let (effects, next) = self.propose(process, &loaded);
        if is_overtaken || next.is_none() && !ambiguous.is_empty() {
            Self::give_up(world, group.clone());
            return Self::finish(world, at, &[]);
        }
        if next.is_none() {
            return Self::finish(world, at, &effects);
        }
        let early = |effect: &&Effect| match self.sabotage {
            GroupSabotage::AnswerFirst => true,
            GroupSabotage::RefuseFirst => matches!(effect, Effect::Refused { .. }),
            _ => false,
        };
        let early: Vec<Effect> = effects.iter().filter(early).cloned().collect();
        Self::answer(world, &early);
        world.processes[at].step = Step::Swap(Box::new(loaded));
    }

    fn swap(&self, process: &Process, loaded: &Record) -> Option<Swap> {
        let (effects, next) = self.propose(process, loaded);
        Some(Swap {
            expected: loaded.revision(),
            next: next?,
            effects,
        })
    }
}

fn effect(client: usize, outcome: &Outcome) -> Effect {
    match outcome {
        Outcome::Written(receipt) => Effect::Written {
            client,
            generation: receipt.generation,
        },
        Outcome::Replayed(receipt) => Effect::Replayed {
            client,
            generation: receipt.generation,
        },
        _ => Effect::Refused { client },
    }
}

impl Model for GroupModel {
    type State = World;
    type Action = GroupEvent;

    fn init_states(&self) -> Vec<World> {
        let processes = self
            .clients
            .iter()
            .map(|(_, process)| process + 1)
            .max()
            .unwrap_or_default();
        let mut processes = vec![Process::default(); processes];
        let client = Client {
            state: ClientState::New,
            tries: 0,
            arrival: 0,
        };
        let mut clients = vec![client; self.clients.len()];
        if self.sent {
            for (at, (_, process)) in self.clients.iter().enumerate() {
                processes[*process].queue.push(at);
                clients[at] = Client {
                    state: ClientState::Sent,
                    tries: 1,
                    arrival: at + 1,
                };
            }
        }
        vec![World {
            register: self.first(),
            processes,
            clients,
            late: Vec::new(),
            losses: 0,
            crashes: 0,
            log: Vec::new(),
            faults: Faults::default(),
            largest_group: 0,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<GroupEvent>) {
        for (at, client) in world.clients.iter().enumerate() {
            let again = client.state == ClientState::Unsure && self.named && client.tries < 2;
            if client.state == ClientState::New || again {
                actions.push(GroupEvent::Send(at));
            }
        }
        for (at, process) in world.processes.iter().enumerate() {
            actions.push(GroupEvent::Step(at));
            if matches!(process.step, Step::Swap(_)) && world.losses < self.losses {
                actions.extend([GroupEvent::Lose(at, true), GroupEvent::Lose(at, false)]);
            }
            if process.step != Step::Idle && world.crashes < self.crashes {
                actions.push(GroupEvent::Crash(at));
            }
        }
        actions.extend((0..world.late.len()).map(GroupEvent::Arrive));
    }

    fn next_state(&self, last: &World, event: GroupEvent) -> Option<World> {
        let mut world = last.clone();
        match event {
            GroupEvent::Send(at) => {
                let arrival = world
                    .clients
                    .iter()
                    .map(|client| client.arrival)
                    .max()
                    .unwrap_or_default()
                    + 1;
                let tries = world.clients[at].tries + 1;
                world.clients[at] = Client {
                    state: ClientState::Sent,
                    tries,
                    arrival,
                };
                world.processes[self.clients[at].1].queue.push(at);
            }
            GroupEvent::Step(at) => self.step(&mut world, at)?,
            GroupEvent::Lose(at, done) => {
                let Step::Swap(loaded) = &last.processes[at].step else {
                    return None;
                };
                let swap = self.swap(&last.processes[at], loaded)?;
                world.losses += 1;
                if done {
                    self.arrive(&mut world, &swap).then_some(())?;
                } else {
                    world.late.push(swap.clone());
                }
                let process = &mut world.processes[at];
                process.step = Step::Load;
                if self.sabotage != GroupSabotage::AssumeNotDone {
                    process.ambiguous.push(swap);
                }
            }
            GroupEvent::Arrive(at) => {
                let swap = world.late.remove(at);
                self.arrive(&mut world, &swap);
            }
            GroupEvent::Crash(at) => {
                world.crashes += 1;
                let process = std::mem::take(&mut world.processes[at]);
                // Its swap may be on its way.
                if let Step::Swap(loaded) = &process.step {
                    world.late.extend(self.swap(&process, loaded));
                }
                Self::give_up(&mut world, [process.group, process.queue].concat());
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no lost update", |_, world: &World| {
                !world.faults.lost_update
            }),
            Property::always("no answer without its effect", |_, world: &World| {
                !world.faults.false_answer
            }),
            Property::always("no refusal without its reason", |_, world: &World| {
                !world.faults.false_refusal
            }),
            Property::always("no change takes effect twice", |_, world: &World| {
                world.log.iter().enumerate().all(|(at, (client, _))| {
                    world.log[at + 1..].iter().all(|(other, _)| other != client)
                })
            }),
            Property::always(
                "changes of a process take effect in order of arrival",
                |model: &Self, world: &World| {
                    let once = |client: usize| world.clients[client].tries == 1;
                    let of = |process: usize| {
                        let own = world
                            .log
                            .iter()
                            .filter(move |(client, _)| model.clients[*client].1 == process);
                        own.filter(|(client, _)| once(*client))
                            .map(|(client, _)| world.clients[*client].arrival)
                    };
                    (0..world.processes.len()).all(|process| of(process).is_sorted())
                },
            ),
            Property::always("revisions grow", |_, world: &World| {
                world.log.is_sorted_by_key(|(_, revision)| *revision)
            }),
            Property::sometimes(
                "a group of several changes takes effect",
                |_, world: &World| world.largest_group > 1 && !world.log.is_empty(),
            ),
            Property::sometimes("all are told", |_, world: &World| {
                world
                    .clients
                    .iter()
                    .all(|client| client.state == ClientState::Told)
            }),
        ]
    }
}
