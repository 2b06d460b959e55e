//! A model of bodies in a bucket that several processes share: writers that stage a body and swap the record that names it, copiers, a
//! reader, and sweepers that remove what no record names.
//!
//! Time passes in ticks. Swaps and uploads get lost, or arrive late; processes end at any point. [`BodySabotage`] disables one
//! rule: the model checker must then find an interleaving that the rule prevents.

use stateright::{Model, Property};

/// Time after which a writer's body is too old for its swap, in ticks.
const BOUND: u8 = 0;
/// Time within which a swap that was sent takes place, if ever.
const LATE: u8 = 1;
/// Age from which a body is swept.
const AGE: u8 = BOUND + LATE + 1;
/// Time for which a replaced body stays, so its readers finish.
const GRACE: u8 = 1;

/// The rule that the model disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodySabotage {
    /// None: the unmodified protocol.
    Nothing,
    /// The register ignores the expected revision.
    SwapBlindly,
    /// An unacknowledged swap counts as not done: its writer removes the body.
    AssumeNotDone,
    /// An unacknowledged upload counts as done.
    AssumeStored,
    /// Writers choose the same name.
    ShareName,
    /// A copy names the body of its source.
    ShareBody,
    /// A writer swaps however old its body is.
    OmitBound,
    /// A writer that has replaced a body removes it at once.
    RemoveAtOnce,
    /// The sweep takes bodies of any age.
    OmitAge,
    /// The sweep reads the records before it lists the bodies.
    ScanFirst,
    /// The sweep removes a body as soon as no record names it.
    SweepAtOnce,
}

/// A process's task on the blob, or on its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyTask {
    /// Writes the blob, without a condition.
    Overwrite,
    /// Writes the blob if it has the first version.
    Edit,
    /// Copies the blob.
    Copy,
}

/// The model's parameters.
#[derive(Clone, Debug)]
pub struct BodyModel {
    /// The task of each process.
    pub tasks: Vec<BodyTask>,
    /// Number of sweepers.
    pub sweepers: usize,
    /// `true` if there is a reader.
    pub reads: bool,
    /// Maximum number of ticks.
    pub ticks: u8,
    /// Maximum number of lost answers, of the store or of the register.
    pub losses: u8,
    /// Maximum number of processes that end.
    pub crashes: u8,
    /// The disabled rule.
    pub sabotage: BodySabotage,
}

/// Number of keys.
const KEYS: usize = 2;
/// The key of the blob.
const BLOB: usize = 0;
/// The key of its copy.
const COPY: usize = 1;
/// The number of the version in the beginning, and of its body.
const FIRST: usize = 0;

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    now: u8,
    losses: u8,
    crashes: u8,
    records: [Option<Named>; KEYS],
    /// The last revision.
    revision: u8,
    /// The objects, by name.
    bodies: Vec<Option<Object>>,
    /// The next step of each writer.
    writers: Vec<Step>,
    late_swaps: Vec<Swap>,
    /// Uploads that arrive late, if ever: the writer, and the source of a copy.
    late_uploads: Vec<(usize, Option<Named>)>,
    /// Bodies to remove, each with its time and its process.
    removals: Vec<(usize, u8, usize)>,
    sweepers: Vec<Sweeper>,
    reader: Reader,
    /// Number of acknowledged edits whose condition was the first version.
    winners: u8,
    faults: Faults,
    swept: bool,
}

/// A version of the blob, and the name of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Named {
    version: usize,
    body: usize,
    revision: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Object {
    /// The version whose bytes it has.
    bytes: usize,
    born: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Faults {
    interrupted: bool,
    foreign_bytes: bool,
    lost_body: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// About to upload. A copier has loaded its source.
    Upload(Option<Named>),
    /// The body is stored, since this time. A swap may have been sent without an answer.
    Swap {
        began: u8,
        source: Option<Named>,
        sent: Option<Swap>,
    },
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Swap {
    key: usize,
    replaced: Option<Named>,
    next: Named,
    sent: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Sweeper {
    #[default]
    Idle,
    /// Has listed these, and scanned some keys.
    Scans { old: Vec<usize>, key: usize },
    /// May remove these after this time.
    Removes { unnamed: Vec<usize>, after: u8 },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Reader {
    #[default]
    Idle,
    /// Has loaded a record, at this time.
    Loaded(Named, u8),
    /// Has read a part of the body.
    Reads(Named, u8),
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEvent {
    /// Time passes.
    Tick,
    /// A writer's next step.
    Write(usize),
    /// A writer's request gets no answer. The flag is `true` if it takes place at once; otherwise it may do so later.
    Lose(usize, bool),
    /// A writer's process ends. What it has sent may arrive later.
    End(usize),
    /// A late swap arrives.
    ArriveSwap(usize),
    /// A late upload arrives.
    ArriveUpload(usize),
    /// A replaced body is removed after its grace.
    Remove(usize),
    /// A sweeper's next step.
    Sweep(usize),
    /// The reader's next step.
    Read,
}

impl BodyModel {
    fn is(&self, sabotage: BodySabotage) -> bool {
        self.sabotage == sabotage
    }

    fn key(&self, writer: usize) -> usize {
        if self.tasks[writer] == BodyTask::Copy {
            COPY
        } else {
            BLOB
        }
    }

    /// The name of a writer's body.
    fn name(&self, writer: usize, source: Option<Named>) -> usize {
        match source {
            Some(source) if self.is(BodySabotage::ShareBody) => source.body,
            _ if self.is(BodySabotage::ShareName) => 1,
            _ => writer + 1,
        }
    }

    /// Stores a body. A copier's source may be gone.
    fn upload(&self, world: &mut World, writer: usize, source: Option<Named>) -> bool {
        let bytes = match source {
            Some(source) => world.bodies[source.body].map(|body| body.bytes),
            None => Some(writer + 1),
        };
        let Some(bytes) = bytes else { return false };
        let name = self.name(writer, source);
        world.bodies[name] = Some(Object {
            bytes,
            born: world.now,
        });
        true
    }

    fn proposal(&self, world: &World, writer: usize, source: Option<Named>) -> Option<Swap> {
        let key = self.key(writer);
        let found = world.records[key];
        if self.tasks[writer] == BodyTask::Edit && found.is_none_or(|found| found.version != FIRST)
        {
            return None;
        }
        let version = source.map_or(writer + 1, |source| source.version);
        let next = Named {
            version,
            body: self.name(writer, source),
            revision: world.revision + 1,
        };
        Some(Swap {
            key,
            replaced: found,
            next,
            sent: world.now,
        })
    }

    /// A swap arrives. Returns `None` if it doesn't take place.
    fn arrive(&self, world: &mut World, swap: Swap) -> Option<()> {
        if world.records[swap.key] != swap.replaced && !self.is(BodySabotage::SwapBlindly) {
            return None;
        }
        world.revision += 1;
        world.records[swap.key] = Some(Named {
            revision: world.revision,
            ..swap.next
        });
        Some(())
    }

    /// A writer learns that its swap took place.
    fn win(&self, world: &mut World, writer: usize, replaced: Option<Named>) {
        world.writers[writer] = Step::Done;
        world.winners += u8::from(self.tasks[writer] == BodyTask::Edit);
        let Some(replaced) = replaced else { return };
        if self.is(BodySabotage::RemoveAtOnce) {
            world.bodies[replaced.body] = None;
        } else {
            world
                .removals
                .push((replaced.body, world.now + GRACE, writer));
        }
    }

    /// A writer learns that no record will ever name its body.
    fn discard(&self, world: &mut World, writer: usize, source: Option<Named>) {
        world.writers[writer] = Step::Done;
        world.bodies[self.name(writer, source)] = None;
    }

    /// Finds out what became of a swap without an answer. Returns `false` if it may be repeated.
    fn settle(&self, world: &mut World, writer: usize, source: Option<Named>, sent: Swap) -> bool {
        let found = world.records[sent.key];
        if found
            .is_some_and(|found| found.version == sent.next.version && found.body == sent.next.body)
        {
            self.win(world, writer, sent.replaced);
        } else if self.is(BodySabotage::AssumeNotDone) {
            self.discard(world, writer, source);
        } else if found != sent.replaced {
            // Another process was faster: the outcome stays unknown, and so the body stays.
            world.writers[writer] = Step::Done;
        } else {
            return false;
        }
        true
    }

    fn write(&self, world: &mut World, writer: usize) -> Option<()> {
        match world.writers[writer] {
            Step::Upload(source) => {
                let source = match (self.tasks[writer], source) {
                    (BodyTask::Copy, None) => {
                        world.writers[writer] = Step::Upload(Some(world.records[BLOB]?));
                        return Some(());
                    }
                    (_, source) => source,
                };
                let began = world.now;
                let stored = self.upload(world, writer, source);
                world.writers[writer] = if stored {
                    Step::Swap {
                        began,
                        source,
                        sent: None,
                    }
                } else {
                    Step::Upload(None)
                };
            }
            Step::Swap {
                began,
                source,
                sent,
            } => {
                if let Some(sent) = sent
                    && self.settle(world, writer, source, sent)
                {
                    return Some(());
                }
                let is_late = self.is_late(world, began);
                match self.proposal(world, writer, source).filter(|_| !is_late) {
                    Some(swap) => {
                        self.arrive(world, swap)?;
                        self.win(world, writer, swap.replaced);
                    }
                    None if sent.is_none() => self.discard(world, writer, source),
                    // The swap may still arrive.
                    None => world.writers[writer] = Step::Done,
                }
            }
            Step::Done => return None,
        }
        Some(())
    }

    /// Returns `true` if a body is too old for a swap.
    fn is_late(&self, world: &World, began: u8) -> bool {
        world.now > began + BOUND && !self.is(BodySabotage::OmitBound)
    }

    fn lose(&self, world: &mut World, writer: usize, done: bool) -> Option<()> {
        world.losses += 1;
        match world.writers[writer] {
            Step::Upload(source) => {
                if source.is_none() && self.tasks[writer] == BodyTask::Copy {
                    return None;
                }
                if done {
                    self.upload(world, writer, source).then_some(())?;
                } else {
                    world.late_uploads.push((writer, source));
                }
                // The client gets an error, and the name is never used again.
                let began = world.now;
                let is_assumed = self.is(BodySabotage::AssumeStored);
                world.writers[writer] = if is_assumed {
                    Step::Swap {
                        began,
                        source,
                        sent: None,
                    }
                } else {
                    Step::Done
                };
            }
            Step::Swap {
                began,
                source,
                sent: None,
            } => {
                if self.is_late(world, began) {
                    return None;
                }
                let sent = self.proposal(world, writer, source)?;
                if done {
                    self.arrive(world, sent)?;
                } else {
                    world.late_swaps.push(sent);
                }
                world.writers[writer] = Step::Swap {
                    began,
                    source,
                    sent: Some(sent),
                };
            }
            _ => return None,
        }
        Some(())
    }

    fn end(&self, world: &mut World, writer: usize) -> Option<()> {
        let step = world.writers[writer];
        if let Step::Swap {
            began,
            source,
            sent: None,
        } = step
            && !self.is_late(world, began)
        {
            world
                .late_swaps
                .extend(self.proposal(world, writer, source));
        }
        world.crashes += 1;
        world.writers[writer] = Step::Done;
        let removals = world.removals.len();
        world.removals.retain(|(_, _, process)| *process != writer);
        (step != Step::Done || world.removals.len() < removals).then_some(())
    }

    fn old(&self, world: &World) -> Vec<usize> {
        let is_old = |body: &Object| body.born + AGE <= world.now || self.is(BodySabotage::OmitAge);
        (0..world.bodies.len())
            .filter(|name| world.bodies[*name].as_ref().is_some_and(is_old))
            .collect()
    }

    fn sweep(&self, world: &mut World, at: usize) -> Option<()> {
        let scan_first = self.is(BodySabotage::ScanFirst);
        world.sweepers[at] = match world.sweepers[at].clone() {
            Sweeper::Idle => {
                let all = (0..world.bodies.len()).collect();
                Sweeper::Scans {
                    old: if scan_first { all } else { self.old(world) },
                    key: 0,
                }
            }
            Sweeper::Scans { old, key } if key < KEYS => {
                let named = world.records[key].map(|record| record.body);
                Sweeper::Scans {
                    old: old
                        .into_iter()
                        .filter(|name| Some(*name) != named)
                        .collect(),
                    key: key + 1,
                }
            }
            Sweeper::Scans { old, .. } => {
                let listed = if scan_first {
                    self.old(world)
                } else {
                    old.clone()
                };
                let unnamed: Vec<usize> = old
                    .into_iter()
                    .filter(|name| listed.contains(name))
                    .collect();
                let grace = if self.is(BodySabotage::SweepAtOnce) {
                    0
                } else {
                    GRACE
                };
                if unnamed.is_empty() {
                    Sweeper::Idle
                } else {
                    Sweeper::Removes {
                        unnamed,
                        after: world.now + grace,
                    }
                }
            }
            Sweeper::Removes { unnamed, after } => {
                if world.now < after {
                    return None;
                }
                for name in unnamed {
                    world.swept |= world.bodies[name].take().is_some();
                }
                Sweeper::Idle
            }
        };
        Some(())
    }

    fn read(world: &mut World) -> Option<()> {
        world.reader = match world.reader {
            Reader::Idle => Reader::Loaded(world.records[BLOB]?, world.now),
            Reader::Loaded(named, loaded) => {
                if let Some(body) = world.bodies[named.body] {
                    world.faults.foreign_bytes |= body.bytes != named.version;
                    Reader::Reads(named, loaded)
                } else {
                    // It loads the record again, which must have changed.
                    world.faults.lost_body |= world.records[BLOB] == Some(named);
                    Reader::Idle
                }
            }
            Reader::Reads(named, loaded) => {
                // A slower reader may be interrupted, and notices that.
                let in_time = world.now < loaded + GRACE;
                world.faults.interrupted |= in_time && world.bodies[named.body].is_none();
                Reader::Idle
            }
        };
        Some(())
    }
}

impl Model for BodyModel {
    type State = World;
    type Action = BodyEvent;

    fn init_states(&self) -> Vec<World> {
        let first = Named {
            version: FIRST,
            body: FIRST,
            revision: 1,
        };
        let mut bodies = vec![None; self.tasks.len() + 1];
        bodies[FIRST] = Some(Object {
            bytes: FIRST,
            born: 0,
        });
        vec![World {
            now: 0,
            losses: 0,
            crashes: 0,
            records: [Some(first), None],
            revision: 1,
            bodies,
            writers: vec![Step::Upload(None); self.tasks.len()],
            late_swaps: Vec::new(),
            late_uploads: Vec::new(),
            removals: Vec::new(),
            sweepers: vec![Sweeper::Idle; self.sweepers],
            reader: Reader::Idle,
            winners: 0,
            faults: Faults::default(),
            swept: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<BodyEvent>) {
        if world.now < self.ticks {
            actions.push(BodyEvent::Tick);
        }
        for at in 0..world.writers.len() {
            actions.push(BodyEvent::Write(at));
            if world.losses < self.losses {
                actions.extend([BodyEvent::Lose(at, true), BodyEvent::Lose(at, false)]);
            }
            if world.crashes < self.crashes {
                actions.push(BodyEvent::End(at));
            }
        }
        actions.extend((0..world.late_swaps.len()).map(BodyEvent::ArriveSwap));
        actions.extend((0..world.late_uploads.len()).map(BodyEvent::ArriveUpload));
        actions.extend((0..world.removals.len()).map(BodyEvent::Remove));
        actions.extend((0..world.sweepers.len()).map(BodyEvent::Sweep));
        if self.reads {
            actions.push(BodyEvent::Read);
        }
    }

    fn next_state(&self, last: &World, event: BodyEvent) -> Option<World> {
        let mut world = last.clone();
        match event {
            BodyEvent::Tick => world.now += 1,
            BodyEvent::Write(at) => self.write(&mut world, at)?,
            BodyEvent::Lose(at, done) => self.lose(&mut world, at, done)?,
            BodyEvent::End(at) => self.end(&mut world, at)?,
            BodyEvent::ArriveSwap(at) => {
                let swap = world.late_swaps.remove(at);
                // Later than that, it never arrives.
                if world.now <= swap.sent + LATE {
                    self.arrive(&mut world, swap);
                }
            }
            BodyEvent::ArriveUpload(at) => {
                let (writer, source) = world.late_uploads.remove(at);
                self.upload(&mut world, writer, source);
            }
            BodyEvent::Remove(at) => {
                let (body, due, _) = world.removals[at];
                if world.now < due {
                    return None;
                }
                world.removals.remove(at);
                world.bodies[body] = None;
            }
            BodyEvent::Sweep(at) => self.sweep(&mut world, at)?,
            BodyEvent::Read => Self::read(&mut world)?,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("each record's body is there", |_, world: &World| {
                world
                    .records
                    .iter()
                    .flatten()
                    .all(|record| world.bodies[record.body].is_some())
            }),
            Property::always(
                "a reader gets the bytes of its version",
                |_, world: &World| !world.faults.foreign_bytes,
            ),
            Property::always(
                "a missing body means that its record has changed",
                |_, world: &World| !world.faults.lost_body,
            ),
            Property::always(
                "no reader is interrupted within the grace",
                |_, world: &World| !world.faults.interrupted,
            ),
            Property::always("one writer replaces a version", |_, world: &World| {
                world.winners <= 1
            }),
            Property::sometimes("all have written", |_, world: &World| {
                world.writers.iter().all(|writer| *writer == Step::Done)
            }),
            Property::sometimes("a body is swept", |model: &Self, world: &World| {
                world.swept || model.sweepers == 0
            }),
        ]
    }
}
