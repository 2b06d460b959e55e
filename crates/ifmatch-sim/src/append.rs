//! A model of appends to a file: a block is written behind the length that the record names, and then a record with the new
//! length is swapped in. It runs the real [`FileEnd`] of ifmatch-core.
//!
//! Two blobs begin with the same file, by two names, as after a copy. Each has a process that appends the blocks of its clients. Writes
//! and syncs fail, answers to swaps get lost, swaps arrive late, processes crash, the machine loses its power, and readers keep
//! the version that they opened. [`AppendSabotage`] disables one check: the model checker must then find an interleaving that
//! the check prevents.

use std::collections::BTreeSet;

use ifmatch_core::append::FileEnd;
use stateright::{Model, Property};

/// The check that the model disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendSabotage {
    /// None: the unmodified protocol.
    Nothing,
    /// Blocks are written behind the recorded length, whatever is there.
    OverwriteTail,
    /// A file with a second name is appended to.
    IgnoreNames,
    /// The record is swapped before the block is durable.
    SwapUnsynced,
    /// A failed sync counts as done.
    IgnoreSync,
    /// The file of the version before is removed although the new version is in it.
    RemoveShared,
    /// A block counts as appended before the swap.
    AnswerFirst,
    /// An unacknowledged swap counts as not done.
    AssumeNotDone,
    /// Readers read to the end of the file.
    ReadToEnd,
}

/// The model's parameters.
#[derive(Clone, Debug)]
pub struct AppendModel {
    /// The blob of each client: 0 or 1.
    pub clients: Vec<usize>,
    /// Maximum number of failed writes and syncs.
    pub failures: u8,
    /// Maximum number of unacknowledged swaps.
    pub losses: u8,
    /// Maximum number of crashes, each with a loss of power.
    pub crashes: u8,
    /// The disabled check.
    pub sabotage: AppendSabotage,
}

/// A block, by the number of its client. Zero is the first content, [`JUNK`] what a failure leaves.
type Block = u8;

/// Bytes that nobody wrote.
const JUNK: Block = 99;

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The record of each blob.
    records: [Version; 2],
    files: Vec<File>,
    processes: [Step; 2],
    clients: Vec<Client>,
    late: Vec<Swap>,
    /// A version that a reader has opened.
    reader: Option<(usize, Vec<Block>)>,
    failures: u8,
    losses: u8,
    crashes: u8,
    is_misread: bool,
}

/// A version of a blob: the content is at the beginning of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Version {
    revision: u8,
    file: usize,
    /// What the hash says.
    content: Vec<Block>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct File {
    names: u8,
    /// As the system shows them.
    blocks: Vec<Block>,
    /// As they are after a loss of power.
    durable: Vec<Block>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Step {
    #[default]
    Idle,
    /// About to write the blocks of a group.
    Write { swap: Swap, copies: bool },
    /// About to sync the file.
    Sync(Swap),
    /// About to swap.
    Swap(Swap),
    /// A swap has no answer.
    Unsure(Swap),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Swap {
    blob: usize,
    expected: u8,
    next: Version,
    clients: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    /// Has not sent its block.
    New,
    Waiting,
    Told,
    Refused,
    Unsure,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendEvent {
    /// A client sends its block.
    Send(usize),
    /// A process's next step.
    Step(usize),
    /// The write or sync of a process fails.
    Fail(usize),
    /// The swap of a process gets no answer. The flag is `true` if it took place at once; otherwise it may do so later.
    Lose(usize, bool),
    /// A late swap arrives.
    Arrive(usize),
    /// The machine loses its power, so both processes end. The swap of this blob's process may still arrive.
    Crash(usize),
    /// A reader opens a blob.
    Open(usize),
    /// It reads.
    Read,
}

impl World {
    /// Returns `true` if the file of a version begins with its content, also after a loss of power.
    fn is_whole(&self, version: &Version) -> bool {
        let file = &self.files[version.file];
        let begins = |blocks: &[Block]| blocks.starts_with(&version.content);
        file.names > 0 && begins(&file.blocks) && begins(&file.durable)
    }
}

impl AppendModel {
    /// Decides the appends that wait at a blob.
    fn decide(&self, world: &World, blob: usize) -> Option<Step> {
        let before = &world.records[blob];
        let waiting = self.clients_that_are(world, Client::Waiting);
        let clients: Vec<usize> = waiting
            .filter(|client| self.clients[*client] == blob)
            .collect();
        if clients.is_empty() {
            return None;
        }
        let file = &world.files[before.file];
        let end = FileEnd {
            length: match self.sabotage {
                AppendSabotage::OverwriteTail => before.content.len() as u64,
                _ => file.blocks.len() as u64,
            },
            has_one_name: file.names == 1 || self.sabotage == AppendSabotage::IgnoreNames,
        };
        let copies = !end.takes_append_at(before.content.len() as u64);
        let mut content = before.content.clone();
        let block = |client: &usize| u8::try_from(*client + 1).unwrap_or(JUNK);
        content.extend(clients.iter().map(block));
        let next = Version {
            revision: before.revision + 1,
            file: before.file,
            content,
        };
        Some(Step::Write {
            swap: Swap {
                blob,
                expected: before.revision,
                next,
                clients,
            },
            copies,
        })
    }

    fn clients_that_are(&self, world: &World, state: Client) -> impl Iterator<Item = usize> {
        (0..self.clients.len()).filter(move |client| world.clients[*client] == state)
    }

    /// Returns `true` if the blob of a client has its block.
    fn has_block_of(&self, world: &World, client: usize) -> bool {
        let content = &world.records[self.clients[client]].content;
        content
            .iter()
            .any(|block| usize::from(*block) == client + 1)
    }

    fn step(&self, world: &mut World, at: usize) -> Option<()> {
        world.processes[at] = match std::mem::take(&mut world.processes[at]) {
            Step::Idle => self.decide(world, at)?,
            Step::Write { mut swap, copies } => {
                Self::write(world, &mut swap, copies, false);
                match self.sabotage {
                    AppendSabotage::SwapUnsynced => Step::Swap(swap),
                    _ => Step::Sync(swap),
                }
            }
            Step::Sync(swap) => {
                let file = &mut world.files[swap.next.file];
                file.durable = file.blocks.clone();
                if self.sabotage == AppendSabotage::AnswerFirst {
                    Self::tell(world, &swap, Client::Told);
                }
                Step::Swap(swap)
            }
            Step::Swap(swap) => {
                if self.arrive(world, &swap) {
                    Self::tell(world, &swap, Client::Told);
                }
                Step::Idle
            }
            // Load the record again. If it isn't there, it may still arrive.
            Step::Unsure(swap) => {
                let state = if world.records[at] == swap.next {
                    Client::Told
                } else {
                    Client::Unsure
                };
                Self::tell(world, &swap, state);
                Step::Idle
            }
        };
        Some(())
    }

    /// Writes the new blocks, or some of them and junk.
    fn write(world: &mut World, swap: &mut Swap, copies: bool, fails: bool) {
        let before = world.records[swap.blob].content.len();
        if copies {
            swap.next.file = world.files.len();
            world.files.push(File {
                names: 1,
                ..File::default()
            });
        }
        let start = if copies { 0 } else { before };
        let file = &mut world.files[swap.next.file];
        let end = swap.next.content.len();
        for at in start..end {
            let block = if fails && at + 1 == end {
                JUNK
            } else {
                swap.next.content[at]
            };
            match file.blocks.get_mut(at) {
                Some(found) => *found = block,
                None => file.blocks.push(block),
            }
        }
    }

    /// A swap arrives at the register. Returns `true` if it takes place.
    fn arrive(&self, world: &mut World, swap: &Swap) -> bool {
        if world.records[swap.blob].revision != swap.expected {
            return false;
        }
        let before = std::mem::replace(&mut world.records[swap.blob], swap.next.clone());
        if before.file != swap.next.file || self.sabotage == AppendSabotage::RemoveShared {
            let file = &mut world.files[before.file];
            file.names = file.names.saturating_sub(1);
        }
        true
    }

    fn tell(world: &mut World, swap: &Swap, state: Client) {
        for client in &swap.clients {
            world.clients[*client] = state;
        }
    }

    fn fail(&self, world: &mut World, at: usize) -> Option<()> {
        world.failures += 1;
        match std::mem::take(&mut world.processes[at]) {
            Step::Write { mut swap, copies } => {
                Self::write(world, &mut swap, copies, true);
                Self::tell(world, &swap, Client::Refused);
            }
            Step::Sync(swap) => {
                // The system forgets that the last block isn't on the disk.
                let file = &mut world.files[swap.next.file];
                let kept = file.durable.len().min(file.blocks.len());
                file.durable = file.blocks[..kept].to_vec();
                file.durable.resize(file.blocks.len(), JUNK);
                if self.sabotage == AppendSabotage::IgnoreSync {
                    world.processes[at] = Step::Swap(swap);
                } else {
                    Self::tell(world, &swap, Client::Refused);
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn lose(&self, world: &mut World, at: usize, is_done: bool) -> Option<()> {
        let Step::Swap(swap) = world.processes[at].clone() else {
            return None;
        };
        world.losses += 1;
        if is_done {
            self.arrive(world, &swap);
        } else {
            world.late.push(swap.clone());
        }
        world.processes[at] = if self.sabotage == AppendSabotage::AssumeNotDone {
            Self::tell(world, &swap, Client::Waiting);
            Step::Idle
        } else {
            Step::Unsure(swap)
        };
        Some(())
    }

    fn crash(world: &mut World, at: usize) {
        world.crashes += 1;
        for step in std::mem::take(&mut world.processes) {
            let (Step::Write { swap, .. }
            | Step::Sync(swap)
            | Step::Swap(swap)
            | Step::Unsure(swap)) = &step
            else {
                continue;
            };
            if world.clients[swap.clients[0]] != Client::Told {
                Self::tell(world, swap, Client::Unsure);
            }
            // Of one process, the swap may be on its way to a register elsewhere.
            if matches!(step, Step::Swap(_)) && swap.blob == at {
                world.late.push(swap.clone());
            }
        }
        world.reader = None;
        for file in &mut world.files {
            file.blocks = file.durable.clone();
        }
    }
}

impl Model for AppendModel {
    type State = World;
    type Action = AppendEvent;

    fn init_states(&self) -> Vec<World> {
        let first = Version {
            revision: 1,
            file: 0,
            content: vec![0],
        };
        vec![World {
            records: [first.clone(), first],
            files: vec![File {
                names: 2,
                blocks: vec![0],
                durable: vec![0],
            }],
            processes: [Step::Idle, Step::Idle],
            clients: vec![Client::New; self.clients.len()],
            late: Vec::new(),
            reader: None,
            failures: 0,
            losses: 0,
            crashes: 0,
            is_misread: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<AppendEvent>) {
        let new = |client: &usize| world.clients[*client] == Client::New;
        actions.extend((0..self.clients.len()).filter(new).map(AppendEvent::Send));
        for at in 0..2 {
            let step = &world.processes[at];
            actions.push(AppendEvent::Step(at));
            if matches!(step, Step::Write { .. } | Step::Sync(_)) && world.failures < self.failures
            {
                actions.push(AppendEvent::Fail(at));
            }
            if matches!(step, Step::Swap(_)) && world.losses < self.losses {
                actions.extend([AppendEvent::Lose(at, true), AppendEvent::Lose(at, false)]);
            }
            if world.crashes < self.crashes {
                actions.push(AppendEvent::Crash(at));
            }
            if world.reader.is_none() {
                actions.push(AppendEvent::Open(at));
            }
        }
        actions.extend((0..world.late.len()).map(AppendEvent::Arrive));
        if world.reader.is_some() {
            actions.push(AppendEvent::Read);
        }
    }

    fn next_state(&self, last: &World, event: AppendEvent) -> Option<World> {
        let mut world = last.clone();
        match event {
            AppendEvent::Send(client) => world.clients[client] = Client::Waiting,
            AppendEvent::Step(at) => self.step(&mut world, at)?,
            AppendEvent::Fail(at) => self.fail(&mut world, at)?,
            AppendEvent::Lose(at, done) => self.lose(&mut world, at, done)?,
            AppendEvent::Arrive(at) => {
                let swap = world.late.remove(at);
                self.arrive(&mut world, &swap);
            }
            AppendEvent::Crash(at) => Self::crash(&mut world, at),
            AppendEvent::Open(at) => {
                let Version { file, content, .. } = world.records[at].clone();
                world.reader = Some((file, content));
            }
            AppendEvent::Read => {
                let (file, content) = world.reader.take()?;
                let blocks = &world.files[file].blocks;
                let end = if self.sabotage == AppendSabotage::ReadToEnd {
                    blocks.len()
                } else {
                    content.len()
                };
                world.is_misread = blocks.get(..end) != Some(&content);
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "a version has its own bytes, also after a loss of power",
                |_, world: &World| world.records.iter().all(|version| world.is_whole(version)),
            ),
            Property::always(
                "a reader gets the bytes of the version that it opened",
                |_, world: &World| !world.is_misread,
            ),
            Property::always("an acknowledged block is there", |model: &Self, world| {
                let mut told = model.clients_that_are(world, Client::Told);
                told.all(|client| model.has_block_of(world, client))
            }),
            Property::always("a refused block isn't", |model: &Self, world| {
                let mut refused = model.clients_that_are(world, Client::Refused);
                !refused.any(|client| model.has_block_of(world, client))
            }),
            Property::always("no block is there twice", |_, world: &World| {
                let is_unique = |version: &Version| {
                    let blocks: BTreeSet<_> = version.content.iter().collect();
                    blocks.len() == version.content.len()
                };
                world.records.iter().all(is_unique)
            }),
            Property::sometimes("a block is appended in place", |_, world: &World| {
                let swaps = |version: &Version| usize::from(version.revision - 1);
                let copies = world.files.len() - 1;
                copies < world.records.iter().map(swaps).sum()
            }),
            Property::sometimes("all are told", |_, world: &World| {
                world.clients.iter().all(|client| *client == Client::Told)
            }),
        ]
    }
}
