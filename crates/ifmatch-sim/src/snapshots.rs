//! A model of the snapshots of one blob, and of deletions that must leave none behind. Both may be in any process.
//!
//! A snapshot is written first, and then changes a field of the blob, which the blob's other writes keep. A deletion reads the field,
//! looks for snapshots, and deletes the blob if the field is still the same. [`SnapshotSabotage`] disables one rule: the model checker
//! must then find an interleaving that the rule prevents.

use stateright::{Model, Property};

/// The rule that the model disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotSabotage {
    /// None: the unmodified protocol.
    Nothing,
    /// A snapshot is acknowledged without a change of the field.
    OmitChange,
    /// The field is changed before the snapshot is written.
    ChangeEarly,
    /// The field is changed in another life of the blob.
    ChangeAnyLife,
    /// A deletion reads the field after its look for snapshots.
    ReadLate,
    /// A deletion ignores that the field has changed.
    IgnoreField,
    /// A write of the blob forgets the field.
    ForgetField,
    /// Two snapshots leave the same value in the field.
    RepeatField,
}

/// The model's parameters.
#[derive(Clone, Debug)]
pub struct SnapshotModel {
    /// Number of snapshots.
    pub snapshots: usize,
    /// Number of deletions that must leave no snapshot behind.
    pub deletions: usize,
    /// Maximum number of writes of the blob, each of which creates it if it was deleted.
    pub writes: u8,
    /// Maximum number of snapshots that are deleted.
    pub removals: u8,
    /// The disabled rule.
    pub sabotage: SnapshotSabotage,
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    blob: Option<Blob>,
    lives: u8,
    /// The life to which each snapshot that exists belongs.
    stored: Vec<Option<u8>>,
    takers: Vec<Taker>,
    deletions: Vec<Deletion>,
    /// The lives that a deletion has ended.
    ended: Vec<u8>,
    writes: u8,
    removals: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blob {
    life: u8,
    /// The last snapshot.
    last: Option<usize>,
}

/// The next step of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Taker {
    Read,
    Write(u8),
    Change(u8),
    /// Acknowledged.
    Told(u8),
    /// Acknowledged, and then deleted.
    Removed,
    Failed,
}

/// The next step of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Deletion {
    Read,
    Look(Blob),
    Delete(Blob),
    Done,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotEvent {
    /// The next step of a snapshot.
    Take(usize),
    /// The next step of a deletion.
    Delete(usize),
    /// The blob is written.
    Write,
    /// An acknowledged snapshot is deleted.
    Remove(usize),
}

impl SnapshotModel {
    fn is(&self, sabotage: SnapshotSabotage) -> bool {
        self.sabotage == sabotage
    }

    /// Changes the field. Returns `false` if the blob has ended its life.
    fn change(&self, world: &mut World, at: usize, life: u8) -> bool {
        let last = if self.is(SnapshotSabotage::RepeatField) {
            0
        } else {
            at
        };
        let is_any = self.is(SnapshotSabotage::ChangeAnyLife);
        let blob = world
            .blob
            .as_mut()
            .filter(|blob| blob.life == life || is_any);
        blob.map(|blob| blob.last = Some(last)).is_some()
    }

    fn take(&self, world: &mut World, at: usize) -> Option<()> {
        let is_early = self.is(SnapshotSabotage::ChangeEarly);
        let step = world.takers[at];
        world.takers[at] = match step {
            Taker::Read => match world.blob {
                Some(blob) if is_early => {
                    self.change(world, at, blob.life);
                    Taker::Write(blob.life)
                }
                Some(blob) => Taker::Write(blob.life),
                None => Taker::Failed,
            },
            Taker::Write(life) => {
                world.stored[at] = Some(life);
                if is_early || self.is(SnapshotSabotage::OmitChange) {
                    Taker::Told(life)
                } else {
                    Taker::Change(life)
                }
            }
            Taker::Change(life) if self.change(world, at, life) => Taker::Told(life),
            Taker::Change(_) => {
                world.stored[at] = None;
                Taker::Failed
            }
            Taker::Told(_) | Taker::Removed | Taker::Failed => return None,
        };
        Some(())
    }

    fn delete(&self, world: &mut World, at: usize) -> Option<()> {
        let has_snapshots = |life| world.stored.contains(&Some(life));
        world.deletions[at] = match world.deletions[at] {
            Deletion::Read => world.blob.map_or(Deletion::Done, Deletion::Look),
            Deletion::Look(seen) if has_snapshots(seen.life) => Deletion::Done,
            Deletion::Look(_) if self.is(SnapshotSabotage::ReadLate) => {
                world.blob.map_or(Deletion::Done, Deletion::Delete)
            }
            Deletion::Look(seen) => Deletion::Delete(seen),
            Deletion::Delete(seen) => match world.blob {
                Some(blob) if blob.last == seen.last || self.is(SnapshotSabotage::IgnoreField) => {
                    world.ended.push(blob.life);
                    world.blob = None;
                    Deletion::Done
                }
                Some(_) => Deletion::Read,
                None => Deletion::Done,
            },
            Deletion::Done => return None,
        };
        Some(())
    }

    fn write(&self, world: &mut World) -> Option<()> {
        if world.writes == self.writes {
            return None;
        }
        world.writes += 1;
        match &mut world.blob {
            Some(blob) if self.is(SnapshotSabotage::ForgetField) => blob.last = None,
            Some(_) => {}
            None => {
                world.lives += 1;
                world.blob = Some(Blob {
                    life: world.lives,
                    last: None,
                });
            }
        }
        Some(())
    }

    fn remove(&self, world: &mut World, at: usize) -> Option<()> {
        if world.removals == self.removals || !matches!(world.takers[at], Taker::Told(_)) {
            return None;
        }
        world.removals += 1;
        (world.takers[at], world.stored[at]) = (Taker::Removed, None);
        Some(())
    }
}

impl Model for SnapshotModel {
    type State = World;
    type Action = SnapshotEvent;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            blob: Some(Blob {
                life: 1,
                last: None,
            }),
            lives: 1,
            stored: vec![None; self.snapshots],
            takers: vec![Taker::Read; self.snapshots],
            deletions: vec![Deletion::Read; self.deletions],
            ended: Vec::new(),
            writes: 0,
            removals: 0,
        }]
    }

    fn actions(&self, _: &World, actions: &mut Vec<SnapshotEvent>) {
        actions.extend((0..self.snapshots).map(SnapshotEvent::Take));
        actions.extend((0..self.deletions).map(SnapshotEvent::Delete));
        actions.extend((0..self.snapshots).map(SnapshotEvent::Remove));
        actions.push(SnapshotEvent::Write);
    }

    fn next_state(&self, last: &World, event: SnapshotEvent) -> Option<World> {
        let mut world = last.clone();
        match event {
            SnapshotEvent::Take(at) => self.take(&mut world, at)?,
            SnapshotEvent::Delete(at) => self.delete(&mut world, at)?,
            SnapshotEvent::Write => self.write(&mut world)?,
            SnapshotEvent::Remove(at) => self.remove(&mut world, at)?,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no blob is deleted under an acknowledged snapshot",
                |_, world: &World| {
                    world.takers.iter().all(
                        |taker| !matches!(taker, Taker::Told(life) if world.ended.contains(life)),
                    )
                },
            ),
            Property::sometimes("a blob is deleted", |_, world: &World| {
                !world.ended.is_empty()
            }),
            Property::sometimes("all snapshots are told", |_, world: &World| {
                world
                    .takers
                    .iter()
                    .all(|taker| matches!(taker, Taker::Told(_)))
            }),
        ]
    }
}
