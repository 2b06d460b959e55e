//! A model of writers and a reader that remember their container while it is deleted and created again.
//!
//! A writer asks for the container's record, remembers the response for some ticks, and writes objects that carry the incarnation. The
//! deleter marks the container, waits until no memory of earlier responses is left, removes the objects, and ends the deletion.
//! Messages take any time, clocks fall behind, and an object can arrive at any time after it was sent. It is a write before the
//! deletion if the container wasn't gone when the write began. A tick is half a second. [`ContainerSabotage`] disables one check: the model
//! checker must then find an interleaving that the check prevents.
//!
//! An object that arrives after the deletion stays in the store. The reader asks for the container's record, too, and remembers the
//! oldest incarnation with blobs for some more ticks. It takes older objects for no blobs.

use stateright::{Model, Property};

/// Number of ticks for which a response is remembered.
const MEMORY: u8 = 2;
/// Number of ticks by which clocks may differ during that time.
const MARGIN: u8 = 1;
/// Number of ticks for which a reader remembers a response. In reality it is five times as long as a writer's: a larger number of ticks
/// only makes the model larger.
const READS: u8 = 3;

/// The check that the model disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerSabotage {
    /// None: the unmodified protocol.
    Nothing,
    /// The deleter doesn't wait.
    OmitWait,
    /// The deleter waits exactly as long as a response is remembered.
    OmitMargin,
    /// A response's age counts from its arrival.
    CountFromAnswer,
    /// A memory is used at any age.
    KeepMemory,
    /// The reader takes every object for a blob.
    IgnoreIncarnation,
}

/// The model's parameters.
#[derive(Clone, Debug)]
pub struct ContainerModel {
    /// Number of writers. Each writes twice.
    pub writers: usize,
    /// Number of reads.
    pub reads: u8,
    /// Maximum number of ticks.
    pub ticks: u8,
    /// Number of ticks by which the writers' clocks may fall behind.
    pub lag: u8,
    /// The disabled check.
    pub sabotage: ContainerSabotage,
}

/// A container with its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Container {
    Present(u8),
    /// Marked at this tick.
    Deleting(u8, u8),
    /// Deleted: objects of this incarnation and earlier ones aren't blobs.
    Gone(u8),
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    container: Container,
    /// The latest incarnation that was deleted, and when.
    deleted: Option<(u8, u8)>,
    /// Each writer's object in the store: its incarnation.
    objects: Vec<Option<u8>>,
    writers: Vec<Writer>,
    reader: Reader,
    tick: u8,
    lag: u8,
    faults: Faults,
    returned: Returned,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Faults {
    /// A write is acknowledged whose container was gone before it began.
    lost: bool,
    /// A write is acknowledged while its container is being deleted.
    during: bool,
    recreated: bool,
}

/// What the reader has returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Returned {
    /// An object of a container that had been deleted for longer than the reader remembers.
    revived: bool,
    /// A blob.
    found: bool,
    /// Nothing for an object that isn't a blob.
    hidden: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reader {
    step: ReaderStep,
    /// The oldest incarnation with blobs, and the time of the question.
    memory: Option<(u8, u8)>,
    /// The latest incarnation that no read may return anymore when this one began.
    gone: Option<u8>,
    /// Number of reads left.
    left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ReaderStep {
    Idle,
    /// A question that was sent at this time is under way.
    Asked(u8),
    /// The response is under way: the oldest incarnation with blobs, if there are any.
    Answered(Option<u8>, u8),
    /// The request for the objects is under way.
    Get(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    step: Step,
    /// Incarnation, and the time of the question.
    memory: Option<(u8, u8)>,
    /// The latest incarnation that was gone when the write began.
    gone: Option<u8>,
    writes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    /// A question that was sent at this time is under way.
    Asked(u8),
    /// The response is under way.
    Answered(Option<u8>, u8),
    /// The object is under way, or its acknowledgement.
    Put(u8),
    Done,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerEvent {
    /// A writer's next step.
    Step(usize),
    /// The reader's next step.
    Read,
    /// The deleter marks the container.
    Mark,
    /// The deleter ends the deletion.
    End,
    /// The container is created again.
    Create,
    /// Time passes.
    Tick,
    /// Time passes, but not for the writers.
    Lag,
}

impl ContainerModel {
    fn step(&self, world: &mut World, at: usize) {
        let now = world.tick - world.lag;
        let container = world.container;
        let is_fresh =
            |asked: u8| now < asked + MEMORY || self.sabotage == ContainerSabotage::KeepMemory;
        let writer = &mut world.writers[at];
        let next = match writer.step {
            Step::Idle => {
                writer.writes += 1;
                writer.gone = match container {
                    Container::Gone(incarnation) => Some(incarnation),
                    Container::Present(incarnation) | Container::Deleting(incarnation, _) => {
                        incarnation.checked_sub(1)
                    }
                };
                match writer.memory {
                    Some((incarnation, asked)) if is_fresh(asked) => Step::Put(incarnation),
                    _ => Step::Asked(now),
                }
            }
            Step::Asked(asked) => match container {
                Container::Present(incarnation) => Step::Answered(Some(incarnation), asked),
                _ => Step::Answered(None, asked),
            },
            Step::Answered(Some(incarnation), asked) => {
                let from = if self.sabotage == ContainerSabotage::CountFromAnswer {
                    now
                } else {
                    asked
                };
                writer.memory = Some((incarnation, from));
                Step::Put(incarnation)
            }
            Step::Put(incarnation) => {
                world.objects[at] = Some(incarnation);
                world.faults.during |= matches!(container, Container::Deleting(..));
                acknowledge(world, at, incarnation)
            }
            Step::Answered(None, _) | Step::Done => Step::Done,
        };
        world.writers[at].step = next;
    }

    fn read(&self, world: &mut World) {
        let now = world.tick - world.lag;
        let is_fresh =
            |asked: u8| now < asked + READS || self.sabotage == ContainerSabotage::KeepMemory;
        let reader = &mut world.reader;
        reader.step = match reader.step {
            ReaderStep::Idle => {
                reader.left -= 1;
                let is_long_gone = |at: u8| world.tick >= at + READS + MARGIN;
                reader.gone = world
                    .deleted
                    .filter(|(_, at)| is_long_gone(*at))
                    .map(|(incarnation, _)| incarnation);
                match reader.memory {
                    Some((oldest, asked)) if is_fresh(asked) => ReaderStep::Get(oldest),
                    _ => ReaderStep::Asked(now),
                }
            }
            ReaderStep::Asked(asked) => match world.container {
                Container::Present(incarnation) => ReaderStep::Answered(Some(incarnation), asked),
                Container::Deleting(..) => ReaderStep::Answered(None, asked),
                Container::Gone(incarnation) => ReaderStep::Answered(Some(incarnation + 1), asked),
            },
            ReaderStep::Answered(None, _) => ReaderStep::Idle,
            ReaderStep::Answered(Some(oldest), asked) => {
                reader.memory = Some((oldest, asked));
                ReaderStep::Get(oldest)
            }
            ReaderStep::Get(oldest) => {
                for incarnation in world.objects.iter().flatten() {
                    if *incarnation < oldest
                        && self.sabotage != ContainerSabotage::IgnoreIncarnation
                    {
                        world.returned.hidden = true;
                        continue;
                    }
                    world.returned.found = true;
                    world.returned.revived |= reader.gone.is_some_and(|gone| *incarnation <= gone);
                }
                ReaderStep::Idle
            }
        };
    }

    fn may_end(&self, marked: u8, now: u8) -> bool {
        let wait = match self.sabotage {
            ContainerSabotage::OmitWait => 0,
            ContainerSabotage::OmitMargin => MEMORY,
            _ => MEMORY + MARGIN,
        };
        now >= marked + wait
    }
}

/// Reports success to the client, and goes on with the next write.
fn acknowledge(world: &mut World, at: usize, incarnation: u8) -> Step {
    let writer = &world.writers[at];
    world.faults.lost |= writer.gone.is_some_and(|gone| incarnation <= gone);
    if writer.writes < 2 {
        Step::Idle
    } else {
        Step::Done
    }
}

impl Model for ContainerModel {
    type State = World;
    type Action = ContainerEvent;

    fn init_states(&self) -> Vec<World> {
        let writer = Writer {
            step: Step::Idle,
            memory: None,
            gone: None,
            writes: 0,
        };
        let writers = vec![writer; self.writers];
        let reader = Reader {
            step: ReaderStep::Idle,
            memory: None,
            gone: None,
            left: self.reads,
        };
        let objects = vec![None; self.writers];
        vec![World {
            container: Container::Present(0),
            deleted: None,
            objects,
            writers,
            reader,
            tick: 0,
            lag: 0,
            faults: Faults::default(),
            returned: Returned::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<ContainerEvent>) {
        let busy = (0..world.writers.len()).filter(|at| world.writers[*at].step != Step::Done);
        actions.extend(busy.map(ContainerEvent::Step));
        if world.reader.left > 0 || world.reader.step != ReaderStep::Idle {
            actions.push(ContainerEvent::Read);
        }
        match world.container {
            Container::Present(_) => actions.push(ContainerEvent::Mark),
            Container::Deleting(_, marked) if self.may_end(marked, world.tick) => {
                actions.push(ContainerEvent::End);
            }
            Container::Deleting(..) => {}
            Container::Gone(_) => actions.push(ContainerEvent::Create),
        }
        if world.tick < self.ticks {
            actions.push(ContainerEvent::Tick);
            if world.lag < self.lag {
                actions.push(ContainerEvent::Lag);
            }
        }
    }

    fn next_state(&self, last: &World, event: ContainerEvent) -> Option<World> {
        let mut world = last.clone();
        match (event, last.container) {
            (ContainerEvent::Step(at), _) => self.step(&mut world, at),
            (ContainerEvent::Read, _) => self.read(&mut world),
            (ContainerEvent::Mark, Container::Present(incarnation)) => {
                world.container = Container::Deleting(incarnation, world.tick);
            }
            (ContainerEvent::End, Container::Deleting(incarnation, _)) => {
                world.container = Container::Gone(incarnation);
                world.deleted = Some((incarnation, world.tick));
                world.objects.fill(None);
            }
            (ContainerEvent::Create, Container::Gone(incarnation)) if incarnation < 1 => {
                world.container = Container::Present(incarnation + 1);
                world.faults.recreated = true;
            }
            (ContainerEvent::Tick, _) => world.tick += 1,
            (ContainerEvent::Lag, _) => (world.tick, world.lag) = (world.tick + 1, world.lag + 1),
            _ => return None,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(
                "no write into a deleted container is acknowledged",
                |_, world: &World| !world.faults.lost,
            ),
            Property::sometimes("a write ends during a deletion", |_, world: &World| {
                world.faults.during
            }),
            Property::sometimes("a container is created again", |_, world: &World| {
                world.faults.recreated
            }),
            Property::always(
                "no read returns the bytes of a deleted container",
                |_, world: &World| !world.returned.revived,
            ),
        ];
        if self.reads > 0 {
            properties.extend([
                Property::sometimes("a read returns a blob", |_, world: &World| {
                    world.returned.found
                }),
                Property::sometimes(
                    "a read finds an object that is no blob",
                    |_, world: &World| world.returned.hidden,
                ),
            ]);
        }
        properties
    }
}
