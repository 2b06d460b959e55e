//! A model of the deletion of an empty container, whose writers are in several processes.
//!
//! A deletion marks the container, looks for blobs, and deletes the container if it still has its mark. A writer that has created a
//! blob looks at the container again before it answers, and removes any mark. [`EmptyingSabotage`] disables one rule: the model checker
//! must then find an interleaving that the rule prevents.

use stateright::{Model, Property};

/// The rule that the model disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyingSabotage {
    /// None: the unmodified protocol.
    Nothing,
    /// A deletion leaves no mark.
    OmitMark,
    /// A deletion marks the container after its look for blobs.
    MarkLate,
    /// A deletion ignores that its mark is gone.
    IgnoreMark,
    /// A deletion that found no container to mark deletes one that was created since.
    DeleteUnmarked,
    /// A deletion takes the mark of another one for its own.
    TakeAnyMark,
    /// A writer answers without another look at the container.
    OmitLook,
    /// A writer looks at the container again before its swap.
    LookEarly,
    /// A writer leaves the mark.
    LeaveMark,
}

/// The model's parameters.
#[derive(Clone, Debug)]
pub struct EmptyingModel {
    /// Number of writers, each of another blob.
    pub writers: usize,
    /// Number of deletions.
    pub deletions: usize,
    /// `true` if a writer may create the container again.
    pub recreates: bool,
    /// Maximum number of deletions that end in the middle.
    pub crashes: u8,
    /// The disabled rule.
    pub sabotage: EmptyingSabotage,
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    container: Option<Container>,
    incarnations: u8,
    /// The incarnation in which each writer's blob is.
    blobs: Vec<Option<u8>>,
    writers: Vec<Step>,
    deletions: Vec<Deletion>,
    crashes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Container {
    incarnation: u8,
    mark: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// About to look up the container, or to create it.
    Find,
    /// About to swap the blob's record in this incarnation.
    Swap(u8),
    /// About to look at the container again.
    Look(u8),
    /// Acknowledged in this incarnation.
    Told(u8),
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Deletion {
    Mark,
    /// There was no container to mark: about to find that there is still none.
    Absent,
    /// About to look for blobs of this incarnation.
    Look(u8),
    Delete(u8),
    Done,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyingEvent {
    /// A writer's next step.
    Write(usize),
    /// A deletion's next step.
    Delete(usize),
    /// The process of a deletion ends.
    End(usize),
}

impl EmptyingModel {
    fn is(&self, sabotage: EmptyingSabotage) -> bool {
        self.sabotage == sabotage
    }

    fn write(&self, world: &mut World, at: usize) -> Option<()> {
        world.writers[at] = match world.writers[at] {
            Step::Find => match world.container {
                Some(container) if self.is(EmptyingSabotage::LookEarly) => {
                    world.container = Some(Container {
                        mark: None,
                        ..container
                    });
                    Step::Swap(container.incarnation)
                }
                Some(container) => Step::Swap(container.incarnation),
                None if self.recreates => {
                    world.incarnations += 1;
                    world.container = Some(Container {
                        incarnation: world.incarnations,
                        mark: None,
                    });
                    Step::Swap(world.incarnations)
                }
                None => Step::Failed,
            },
            Step::Swap(incarnation) => {
                world.blobs[at] = Some(incarnation);
                let omits =
                    self.is(EmptyingSabotage::OmitLook) || self.is(EmptyingSabotage::LookEarly);
                if omits {
                    Step::Told(incarnation)
                } else {
                    Step::Look(incarnation)
                }
            }
            Step::Look(incarnation) => match &mut world.container {
                Some(container) if container.incarnation == incarnation => {
                    if !self.is(EmptyingSabotage::LeaveMark) {
                        container.mark = None;
                    }
                    Step::Told(incarnation)
                }
                _ => Step::Failed,
            },
            Step::Told(_) | Step::Failed => return None,
        };
        Some(())
    }

    fn mark(&self, world: &mut World, at: usize) {
        if let Some(container) = world
            .container
            .as_mut()
            .filter(|_| !self.is(EmptyingSabotage::OmitMark))
        {
            container.mark = Some(at);
        }
    }

    fn delete(&self, world: &mut World, at: usize) -> Option<()> {
        world.deletions[at] = match world.deletions[at] {
            Deletion::Mark => match world.container {
                Some(container) if self.is(EmptyingSabotage::MarkLate) => {
                    if has_blobs(world, container.incarnation) {
                        return None;
                    }
                    Deletion::Look(container.incarnation)
                }
                Some(container) => {
                    self.mark(world, at);
                    Deletion::Look(container.incarnation)
                }
                None => Deletion::Absent,
            },
            Deletion::Absent => {
                if self.is(EmptyingSabotage::DeleteUnmarked) {
                    world.container = None;
                }
                Deletion::Done
            }
            Deletion::Look(incarnation) if self.is(EmptyingSabotage::MarkLate) => {
                self.mark(world, at);
                Deletion::Delete(incarnation)
            }
            Deletion::Look(incarnation) if has_blobs(world, incarnation) => Deletion::Done,
            Deletion::Look(incarnation) => Deletion::Delete(incarnation),
            Deletion::Delete(incarnation) => {
                if let Some(container) = world
                    .container
                    .filter(|container| container.incarnation == incarnation)
                {
                    let unmarked = self.is(EmptyingSabotage::OmitMark)
                        || self.is(EmptyingSabotage::IgnoreMark);
                    let takes_any =
                        self.is(EmptyingSabotage::TakeAnyMark) && container.mark.is_some();
                    if container.mark == Some(at) || unmarked || takes_any {
                        world.container = None;
                    }
                }
                Deletion::Done
            }
            Deletion::Done => return None,
        };
        Some(())
    }
}

fn has_blobs(world: &World, incarnation: u8) -> bool {
    world.blobs.contains(&Some(incarnation))
}

impl Model for EmptyingModel {
    type State = World;
    type Action = EmptyingEvent;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            container: Some(Container {
                incarnation: 1,
                mark: None,
            }),
            incarnations: 1,
            blobs: vec![None; self.writers],
            writers: vec![Step::Find; self.writers],
            deletions: vec![Deletion::Mark; self.deletions],
            crashes: 0,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<EmptyingEvent>) {
        actions.extend((0..self.writers).map(EmptyingEvent::Write));
        actions.extend((0..self.deletions).map(EmptyingEvent::Delete));
        if world.crashes < self.crashes {
            actions.extend((0..self.deletions).map(EmptyingEvent::End));
        }
    }

    fn next_state(&self, last: &World, event: EmptyingEvent) -> Option<World> {
        let mut world = last.clone();
        match event {
            EmptyingEvent::Write(at) => self.write(&mut world, at)?,
            EmptyingEvent::Delete(at) => self.delete(&mut world, at)?,
            EmptyingEvent::End(at) => {
                world.crashes += 1;
                world.deletions[at] = Deletion::Done;
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no acknowledged blob is in a deleted container",
                |_, world: &World| {
                    world.writers.iter().all(|writer| match writer {
                        Step::Told(incarnation) => world
                            .container
                            .is_some_and(|container| container.incarnation == *incarnation),
                        _ => true,
                    })
                },
            ),
            Property::sometimes("a container is deleted", |_, world: &World| {
                world.container.is_none()
            }),
            Property::sometimes("all are told", |_, world: &World| {
                world
                    .writers
                    .iter()
                    .all(|writer| matches!(writer, Step::Told(_)))
            }),
        ]
    }
}
