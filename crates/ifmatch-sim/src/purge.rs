//! The log of purges as a model: caches that read it, come and go, are cut off, and have clocks of different rates.

use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_core::purge_log::{Follower, Head, Missing, wait};
use stateright::{Model, Property};

/// A tick by a clock without deviation, in microseconds.
const TICK: u64 = 1_000;
/// The bound: two ticks.
const BOUND: Duration = Duration::from_micros(2 * TICK);
/// Number of segments that the log keeps.
const RETAINED: u64 = 1;

/// A rule that is disabled, to show that the model needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// No rule is disabled.
    Nothing,
    /// A purge is acknowledged as soon as it is in the log.
    AckAtOnce,
    /// The wait is the bound itself, without the margin for clocks.
    NoMargin,
    /// A purge is acknowledged before the head names its segment.
    AckBeforeHead,
    /// The bound begins at the end of a read.
    TrustFromEnd,
    /// The bound is renewed before the purges are carried out.
    TrustBeforeApply,
    /// A node that is cut off goes on serving stored responses.
    ServeCutOff,
    /// A node that is cut off lets requests wait for an earlier one to the origin.
    JoinCutOff,
    /// A node decides after it has looked up a response if it may use it.
    TrustAfterLookup,
    /// A response in flight is stored although it was purged.
    StoreInFlight,
    /// A node goes on if segments that it hasn't read are gone.
    IgnoreGap,
    /// A node goes on after a failover of the register.
    IgnoreFailover,
    /// A node serves before its first read of the head, which then counts as its beginning.
    ServeBeforeStart,
}

/// The model: one resource, whose origin changes before each purge.
#[derive(Clone, Debug)]
pub struct Purges {
    /// Number of purges. Each one arrives at the next node.
    pub purges: u8,
    /// Clock rates of the nodes, in thousandths. The purges wait by a clock without deviation.
    pub rates: Vec<u64>,
    /// Maximum number of ticks.
    pub ticks: u8,
    /// Maximum number of crashes of nodes.
    pub crashes: u8,
    /// Maximum number of failovers of the register, which lose the last segment.
    pub failovers: u8,
    /// The disabled rule.
    pub sabotage: Sabotage,
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    tick: u8,
    crashes: u8,
    epoch: u8,
    /// Version of the resource at its origin.
    origin: u8,
    /// The oldest version that a read may return from now on.
    promised: u8,
    head: Head,
    /// Nodes at which the purges of the segments arrived.
    segments: Vec<usize>,
    /// Number of the purge in progress, and its step.
    purge: (u8, Step),
    nodes: Vec<Node>,
    stale: bool,
}

/// The next step of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The resource changes at its origin.
    Change,
    /// The purge arrives at a node, which carries it out.
    Receive,
    /// It is appended to the log as a segment.
    Append,
    /// The head, whose newest segment was this one, names its segment.
    Advance(u64),
    /// It is acknowledged after a wait since this time.
    Acknowledge(Timestamp),
}

/// A cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    follower: Option<Follower>,
    /// End of the time for which it may use stored responses.
    trusted: Timestamp,
    /// A head that was read and not carried out yet, with the time before the read and the register's epoch.
    reading: Option<(Timestamp, Head, u8)>,
    /// The version that it has stored.
    stored: Option<u8>,
    fetch: Option<Fetch>,
    /// A request that has found an old response while the node was cut off.
    found: bool,
}

/// A request to the origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Fetch {
    answer: Option<u8>,
    purged: bool,
    /// Version that a request which waits for it must get at least.
    waiting: u8,
}

impl Node {
    fn purge(&mut self, sabotage: Sabotage) {
        self.stored = None;
        if let Some(fetch) = self
            .fetch
            .as_mut()
            .filter(|_| sabotage != Sabotage::StoreInFlight)
        {
            fetch.purged = true;
        }
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The purge in progress takes its next step.
    Purge,
    /// The purge in progress is abandoned, and not acknowledged.
    Abandon,
    /// A node loads the head.
    Read(usize),
    /// A node carries out what it has read.
    Apply(usize),
    /// A node asks the origin.
    Fetch(usize),
    /// The origin answers a node.
    Answer(usize),
    /// The response arrives, and is stored.
    Store(usize),
    /// A client reads the resource from a node.
    Get(usize),
    /// A request that has found an old response gets it, if the node may use it.
    Serve(usize),
    /// A node restarts.
    Crash(usize),
    /// Another server takes over the register, without the last segment.
    FailOver,
    /// Time passes.
    Tick,
}

impl Purges {
    fn now(world: &World, rate: u64) -> Timestamp {
        Timestamp::from_micros(TICK * 100 + u64::from(world.tick) * TICK * rate / 1_000)
    }

    fn local(&self, world: &World, at: usize) -> Timestamp {
        Self::now(world, self.rates[at])
    }

    fn purge(&self, world: &mut World) -> Option<()> {
        let (number, step) = world.purge;
        let at = usize::from(number) % world.nodes.len();
        let next = match step {
            Step::Change if number < self.purges => {
                world.origin += 1;
                Step::Receive
            }
            Step::Change => return None,
            Step::Receive => {
                world.nodes[at].purge(Sabotage::Nothing);
                Step::Append
            }
            // Helps a purge that was abandoned between its segment and the head.
            Step::Append if world.segments.len() as u64 > world.head.newest => {
                world.head = world.head.advanced(RETAINED);
                Step::Append
            }
            Step::Append => {
                world.segments.push(at);
                if self.sabotage == Sabotage::AckBeforeHead {
                    Step::Acknowledge(Self::now(world, 1_000))
                } else {
                    Step::Advance(world.head.newest)
                }
            }
            Step::Advance(newest) => {
                if world.head.newest == newest && world.segments.len() as u64 > newest {
                    world.head = world.head.advanced(RETAINED);
                    Step::Acknowledge(Self::now(world, 1_000))
                } else {
                    // A failover has lost the segment.
                    Step::Append
                }
            }
            Step::Acknowledge(since) => {
                let wait = match self.sabotage {
                    Sabotage::AckAtOnce => Duration::ZERO,
                    Sabotage::NoMargin => BOUND,
                    _ => wait(BOUND),
                };
                if Self::now(world, 1_000) < since.saturating_add(wait) {
                    return None;
                }
                world.promised = number + 1;
                world.purge = (number + 1, Step::Change);
                return Some(());
            }
        };
        world.purge = (number, next);
        Some(())
    }

    fn apply(&self, world: &mut World, at: usize) -> Option<()> {
        let now = self.local(world, at);
        let segments = world.segments.clone();
        let kept = world.head.oldest;
        let node = &mut world.nodes[at];
        let (began, head, epoch) = node.reading.take()?;
        let mut follower = node
            .follower
            .unwrap_or_else(|| Follower::start(head, epoch.into()));
        match follower.missing(head, epoch.into()) {
            Missing::Nothing => {}
            Missing::Segments { after } => {
                let is_gone = after + 1 < kept || segments.len() as u64 > head.newest + 1;
                let new =
                    segments.get(usize::try_from(after).ok()?..usize::try_from(head.newest).ok()?);
                // A node carries out its own purges when it receives them.
                if is_gone || new.is_none_or(|new| new.iter().any(|by| *by != at)) {
                    node.purge(self.sabotage);
                }
            }
            Missing::Everything => {
                let is_failover = epoch > 0;
                let ignores = if is_failover {
                    self.sabotage == Sabotage::IgnoreFailover
                } else {
                    self.sabotage == Sabotage::IgnoreGap
                };
                if !ignores {
                    node.purge(self.sabotage);
                }
            }
        }
        let began = if self.sabotage == Sabotage::TrustFromEnd {
            now
        } else {
            began
        };
        node.trusted = node
            .trusted
            .max(follower.caught_up(head, epoch.into(), began, BOUND));
        node.follower = Some(follower);
        Some(())
    }

    fn get(&self, world: &mut World, at: usize) -> Option<()> {
        let (now, promised) = (self.local(world, at), world.promised);
        let node = &mut world.nodes[at];
        let trusts = node.follower.is_some() && now < node.trusted;
        let serves = trusts
            || matches!(
                self.sabotage,
                Sabotage::ServeCutOff | Sabotage::ServeBeforeStart
            );
        if let Some(stored) = node.stored.filter(|_| serves) {
            world.stale |= stored < promised;
            return (stored < promised).then_some(());
        }
        if node.stored.is_some_and(|stored| stored < promised)
            && self.sabotage == Sabotage::TrustAfterLookup
        {
            return (!std::mem::replace(&mut node.found, true)).then_some(());
        }
        let joins = serves || self.sabotage == Sabotage::JoinCutOff;
        let fetch = node
            .fetch
            .as_mut()
            .filter(|fetch| joins && !fetch.purged && fetch.waiting < promised)?;
        fetch.waiting = promised;
        Some(())
    }

    fn store(world: &mut World, at: usize) -> Option<()> {
        let fetch = world.nodes[at].fetch.clone()?;
        let answer = fetch.answer?;
        world.stale |= answer < fetch.waiting;
        let node = &mut world.nodes[at];
        node.fetch = None;
        if !fetch.purged {
            node.stored = Some(answer);
        }
        Some(())
    }

    fn happen(&self, world: &mut World, event: Event) -> Option<()> {
        match event {
            Event::Purge => self.purge(world)?,
            Event::Abandon => {
                let (number, step) = world.purge;
                if step == Step::Change {
                    return None;
                }
                world.purge = (number + 1, Step::Change);
            }
            Event::Read(at) => {
                let read = (self.local(world, at), world.head, world.epoch);
                let node = &mut world.nodes[at];
                if node.reading.is_some() {
                    return None;
                }
                node.reading = Some(read);
                if self.sabotage == Sabotage::TrustBeforeApply && node.follower.is_some() {
                    node.trusted = read.0.saturating_add(BOUND);
                }
            }
            Event::Apply(at) => self.apply(world, at)?,
            Event::Fetch(at) => {
                let node = &mut world.nodes[at];
                let starts = node.follower.is_some() || self.sabotage == Sabotage::ServeBeforeStart;
                if node.fetch.is_some() || !starts {
                    return None;
                }
                node.fetch = Some(Fetch::default());
            }
            Event::Answer(at) => {
                let origin = world.origin;
                let fetch = world.nodes[at]
                    .fetch
                    .as_mut()
                    .filter(|fetch| fetch.answer.is_none())?;
                fetch.answer = Some(origin);
            }
            Event::Store(at) => Self::store(world, at)?,
            Event::Get(at) => self.get(world, at)?,
            Event::Serve(at) => {
                let node = &world.nodes[at];
                let is_trusted = node.found && self.local(world, at) < node.trusted;
                world.stale |= is_trusted;
                return is_trusted.then_some(());
            }
            Event::Crash(at) => {
                if world.crashes >= self.crashes {
                    return None;
                }
                world.crashes += 1;
                world.nodes[at] = Node::default();
            }
            Event::FailOver => {
                if world.epoch >= self.failovers || world.head.newest == 0 {
                    return None;
                }
                world.epoch += 1;
                world.head.newest -= 1;
                world
                    .segments
                    .truncate(usize::try_from(world.head.newest).ok()?);
            }
            Event::Tick => {
                if world.tick >= self.ticks {
                    return None;
                }
                world.tick += 1;
            }
        }
        Some(())
    }
}

impl Model for Purges {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            tick: 0,
            crashes: 0,
            epoch: 0,
            origin: 0,
            promised: 0,
            head: Head::new(1),
            segments: Vec::new(),
            purge: (0, Step::Change),
            nodes: vec![Node::default(); self.rates.len()],
            stale: false,
        }]
    }

    fn actions(&self, _: &World, events: &mut Vec<Event>) {
        events.extend([Event::Purge, Event::Abandon, Event::FailOver, Event::Tick]);
        for at in 0..self.rates.len() {
            let of_node: [fn(usize) -> Event; 8] = [
                Event::Read,
                Event::Apply,
                Event::Fetch,
                Event::Answer,
                Event::Store,
                Event::Get,
                Event::Serve,
                Event::Crash,
            ];
            events.extend(of_node.map(|event| event(at)));
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut next = world.clone();
        self.happen(&mut next, event)?;
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOTHING_OLDER, |_, world: &World| !world.stale),
            // The model reaches the states that it is about.
            Property::sometimes(
                "a node serves after an acknowledged purge",
                |model: &Self, world: &World| {
                    world.promised > 0
                        && (0..world.nodes.len()).any(|at| {
                            let node = &world.nodes[at];
                            node.stored == Some(world.promised)
                                && model.local(world, at) < node.trusted
                        })
                },
            ),
        ]
    }
}

/// Name of the property that acknowledged purges hold.
pub const NOTHING_OLDER: &str = "nothing older than an acknowledged purge is served";
