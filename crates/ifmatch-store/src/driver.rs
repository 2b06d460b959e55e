//! Runs commands on a register: load, apply, compare and swap, and again after a conflict, within bounds.

use std::pin::pin;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::future::select;
use ifmatch_core::command::{Begin, Command, Outcome, Refusal, Transition};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};

use crate::clock::{Clock, SystemClock};
use crate::key::Key;
use crate::places::{Place, Places};
use crate::platform::Turns;
use crate::register::{Register, RegisterError, RegisterErrorKind, Swap};
use crate::watched::Watched;

/// The most swaps tried for one command before it is given up as contended.
const MAX_SWAPS: usize = 100;
/// The most swaps tried for one command when the register does not say what became of them.
const MAX_UNANSWERED: usize = 3;
/// The pauses between swaps grow from the first to the second; those between looks at a write in flight elsewhere grow from
/// the first to [`Turns::LONGEST_PAUSE`].
const PAUSE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(50));

/// Runs commands on a register.
///
/// Commands of one process on one key queue up when they wait for each other. Correctness does not rely on this, since
/// the register decides between all processes. The one exception is a permit that has ended by the clock although its
/// handler still runs in this process: the [`Place`] returned with it keeps other writers out.
#[derive(Debug)]
pub struct Driver<R, C = SystemClock> {
    register: R,
    clock: C,
    initial: Record,
    patience: Duration,
    turns: Turns,
    places: Places,
    watched: Watched,
}

/// A command's effect on the register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The record before.
    pub before: Record,
    /// The record after: the same if nothing changed.
    pub after: Record,
    /// What came of the command.
    pub outcome: Outcome,
}

/// Why a command got no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The register failed. Unless its kind is [`RegisterErrorKind::Ambiguous`], nothing was changed.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Others changed the record faster than this command could. Nothing was changed; try again later.
    #[error(
        "the record was changed by others {MAX_SWAPS} times in a row: too many writers at one resource, try again later"
    )]
    Contention,
}

impl DriverError {
    /// Returns `true` if the command may have been carried out, or may still be.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Register(error) if error.kind() == RegisterErrorKind::Ambiguous)
    }
}

impl<R: Register> Driver<R> {
    /// A driver on the system's clock. A key without a record is an unknown resource.
    pub fn new(register: R) -> Self {
        Self::with_clock(register, SystemClock)
    }
}

impl<R: Register, C: Clock> Driver<R, C> {
    /// A driver on a clock of your own.
    pub fn with_clock(register: R, clock: C) -> Self {
        let (patience, initial) = (Duration::from_secs(10), Record::unknown());
        let (turns, places, watched) = (Turns::default(), Places::default(), Watched::default());
        Self { register, clock, initial, patience, turns, places, watched }
    }

    /// Declares that a key without a record is an absent resource, as in a store that keeps its index here.
    #[must_use]
    pub fn assume_absent(mut self) -> Self {
        self.initial = Record::absent();
        self
    }

    /// Sets how long [`Driver::apply_in_turn`] waits for a write in flight. 10 seconds by default.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The register.
    pub fn register(&self) -> &R {
        &self.register
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The record of a resource.
    ///
    /// # Errors
    /// If the register fails.
    pub async fn load(&self, key: &Key) -> Result<Record, DriverError> {
        let record = self.register.load(key).await?;
        let record = record.unwrap_or_else(|| self.initial.clone());
        Ok(self.watched.view(key, record, self.now()))
    }

    /// The revision of a resource's record, where the register can tell it without waiting.
    pub fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.register.revision_at_once(key)
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// [`DriverError::Contention`] when the record changed under every attempt; [`DriverError::Register`] when the
    /// register failed. Refusals are no errors: see [`Outcome::Refused`].
    pub async fn apply(&self, key: &Key, command: &Command<'_>) -> Result<Applied, DriverError> {
        self.apply_to(key, None, command).await
    }

    /// The same, computed from a record that was seen before, if one was: as long as nobody has changed it, that spares the
    /// register a load.
    ///
    /// What was seen is proposed to be replaced, and nothing more: a swap that finds another record begins anew with that
    /// one, and an outcome without a swap is computed from what is loaded then.
    ///
    /// ```
    /// use ifmatch_core::command::{Command, Commit, Content, Outcome};
    /// use ifmatch_store::{Driver, Key, MemoryRegister};
    /// # use ifmatch_core::command::{Authority, Begin};
    /// # let begin = Command::Begin(Begin {
    /// #     method: &http::Method::DELETE,
    /// #     preconditions: &Default::default(),
    /// #     lease: ifmatch_core::lease::LeaseUse::Write(None),
    /// #     observed: None,
    /// #     authority: Authority::Resource,
    /// #     nonce: 7,
    /// #     ttl: std::time::Duration::from_secs(60),
    /// # });
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let (driver, key) = (Driver::new(MemoryRegister::with_capacity(10)), Key::new("note")?);
    /// let begun = driver.apply(&key, &begin).await?;
    /// let Outcome::Granted(grant) = begun.outcome else { panic!("nobody else writes") };
    /// let commit = Command::Commit(Commit { token: grant.token, content: Content::Absent });
    /// driver.apply_to(&key, Some(begun.after), &commit).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Driver::apply`].
    pub async fn apply_to(
        &self,
        key: &Key,
        seen: Option<Record>,
        command: &Command<'_>,
    ) -> Result<Applied, DriverError> {
        self.apply_as(&mut Writer::Passing, key, seen, command).await
    }

    /// Runs a command at the key of this place, on behalf of its writer.
    ///
    /// # Errors
    /// As for [`Driver::apply`].
    pub async fn apply_at(&self, place: &Place<'_>, command: &Command<'_>) -> Result<Applied, DriverError> {
        self.apply_as(&mut Writer::Placed, place.key(), None, command).await
    }

    /// Requests a permit, waiting in turn as [`Driver::apply_in_turn_to`] does. Returns it with the writer's place in
    /// this process: hold the place until the handler has ended and its result is in the register.
    ///
    /// # Errors
    /// As for [`Driver::apply`].
    pub async fn begin(
        &self,
        key: &Key,
        seen: Option<Record>,
        begin: Begin<'_>,
    ) -> Result<(Applied, Option<Place<'_>>), DriverError> {
        let mut place = None;
        let applied = self.in_turn(&mut Writer::Beginning(&mut place), key, seen, &Command::Begin(begin)).await?;
        let granted = matches!(applied.outcome, Outcome::Granted(_));
        Ok((applied, place.filter(|_| granted)))
    }

    /// Carries out a command that needs that no write is in flight, and waits for its turn until then.
    ///
    /// When the patience is over, the outcome is [`Refusal::InFlight`].
    ///
    /// # Errors
    /// As for [`Driver::apply`].
    pub async fn apply_in_turn(&self, key: &Key, command: &Command<'_>) -> Result<Applied, DriverError> {
        self.apply_in_turn_to(key, None, command).await
    }

    /// The same, computed from a record that was seen before, if one was: see [`Driver::apply_to`].
    ///
    /// # Errors
    /// As for [`Driver::apply`].
    pub async fn apply_in_turn_to(
        &self,
        key: &Key,
        seen: Option<Record>,
        command: &Command<'_>,
    ) -> Result<Applied, DriverError> {
        self.in_turn(&mut Writer::Passing, key, seen, command).await
    }

    async fn in_turn<'a>(
        &'a self,
        writer: &mut Writer<'_, 'a>,
        key: &Key,
        seen: Option<Record>,
        command: &Command<'_>,
    ) -> Result<Applied, DriverError> {
        let applied = self.apply_as(writer, key, seen, command).await?;
        if in_flight(&applied.outcome).is_none() {
            return Ok(applied);
        }
        // From here on no end of a write is missed: the place in the queue exists before the record is read again.
        let turn = self.turns.join(key);
        let give_up = self.now().saturating_add(self.patience);
        let mut pauses = pauses().with_max_delay(Turns::LONGEST_PAUSE).without_max_times().build();
        loop {
            let applied = self.apply_as(writer, key, None, command).await?;
            let Some(deadline) = in_flight(&applied.outcome) else {
                if matches!(applied.outcome, Outcome::Granted(_)) {
                    turn.win();
                }
                return Ok(applied);
            };
            let now = self.now();
            if now >= give_up {
                return Ok(applied);
            }
            let pause = pauses.next().unwrap_or(Turns::LONGEST_PAUSE).min(now.until(deadline)).min(now.until(give_up));
            let sleep = self.clock.sleep(pause.max(PAUSE.0));
            select(pin!(turn.called()), pin!(sleep)).await;
        }
    }

    async fn apply_as<'a>(
        &'a self,
        writer: &mut Writer<'_, 'a>,
        key: &Key,
        seen: Option<Record>,
        command: &Command<'_>,
    ) -> Result<Applied, DriverError> {
        let applied = self.swap_in(writer, key, seen, command).await;
        if let Ok(Applied { outcome: Outcome::Written(_) | Outcome::Released, .. }) = applied
            // If the writer has a place, dropping the place ends its turn.
            && !self.places.is_taken(key)
        {
            self.turns.ended(key);
        }
        applied
    }

    /// Returns `true` if a running writer of this process prevents the proposed outcome.
    fn is_kept_off<'a>(&'a self, writer: &mut Writer<'_, 'a>, key: &Key, proposed: &Proposed<'_>) -> bool {
        match (writer, proposed.command, proposed.outcome) {
            (Writer::Placed, ..) | (_, _, Outcome::Refused(Refusal::Lease(_) | Refusal::InFlight { .. })) => false,
            (Writer::Beginning(place), Command::Begin(_), _) => {
                **place = place.take().or_else(|| self.places.take(key, &self.turns));
                place.is_none()
            }
            (_, Command::Begin(_), _) | (_, Command::Lease(_), Outcome::Refused(Refusal::ProbeFirst)) => {
                self.places.is_taken(key)
            }
            (_, Command::Lease(_), _) => proposed.begins_to_lock && self.places.is_taken(key),
            _ => false,
        }
    }

    async fn swap_in<'a>(
        &'a self,
        writer: &mut Writer<'_, 'a>,
        key: &Key,
        seen: Option<Record>,
        command: &Command<'_>,
    ) -> Result<Applied, DriverError> {
        let mut unanswered = Unanswered::default();
        let mut is_loaded = seen.is_none();
        let mut stored = match seen {
            Some(seen) => Some(seen).filter(|seen| seen.revision() != Revision::NONE),
            None => self.register.load(key).await?,
        };
        let mut pauses = pauses().with_max_times(MAX_SWAPS).build();
        loop {
            if let Some(mine) = unanswered.find(stored.as_ref()) {
                return Ok(mine);
            }
            let expected = stored.as_ref().map_or(Revision::NONE, Record::revision);
            if unanswered.overtaken(expected) || unanswered.swaps.len() >= MAX_UNANSWERED {
                return Err(unanswered.or(DriverError::Contention));
            }
            let now = self.clock.now();
            let before = self.watched.view(key, stored.take().unwrap_or_else(|| self.initial.clone()), now);
            let mut transition = before.apply(command, now);
            if self.is_kept_off(writer, key, &Proposed::of(command, &before, &transition, now)) {
                let deadline = before.permit(now).map_or(now, |permit| permit.deadline);
                let deadline = deadline.max(now.saturating_add(Turns::LONGEST_PAUSE));
                transition = Transition { next: None, outcome: Outcome::Refused(Refusal::InFlight { deadline }) };
            }
            let Some(next) = transition.next else {
                if !is_loaded {
                    is_loaded = true;
                    stored = self.register.load(key).await?;
                    continue;
                }
                // The swap without an answer may still take place, and then this is not what came of the command.
                if let Some(error) = unanswered.error.take() {
                    return Err(error.into());
                }
                return Ok(Applied { after: before.clone(), before, outcome: transition.outcome });
            };
            is_loaded = true;
            let applied = Applied { before, after: next, outcome: transition.outcome };
            match self.register.compare_and_swap(key, expected, Some(&applied.after)).await {
                Ok(Swap::Done) => return Ok(applied),
                Ok(Swap::Conflict(found)) => stored = found,
                Err(error) if error.kind() == RegisterErrorKind::Ambiguous => {
                    unanswered.add(applied, error);
                    stored = self.register.load(key).await.map_err(|error| unanswered.or(error.into()))?;
                }
                Err(error) => return Err(unanswered.or(error.into())),
            }
            let Some(pause) = pauses.next() else {
                return Err(unanswered.or(DriverError::Contention));
            };
            self.clock.sleep(pause).await;
        }
    }
}

/// The party that a command runs for.
enum Writer<'p, 'a> {
    /// Has no place and needs none beyond the command.
    Passing,
    /// Takes the place at the key along with its permit.
    Beginning(&'p mut Option<Place<'a>>),
    /// Holds the place at the key.
    Placed,
}

/// A transition about to be proposed to the register.
struct Proposed<'t> {
    command: &'t Command<'t>,
    outcome: &'t Outcome,
    /// `true` if the transition locks a resource that was not locked before.
    begins_to_lock: bool,
}

impl<'t> Proposed<'t> {
    fn of(command: &'t Command<'t>, before: &Record, transition: &'t Transition, now: Timestamp) -> Self {
        let is_locked = |record: &Record| record.lease_state(now).is_locked();
        let begins_to_lock = transition.next.as_ref().is_some_and(is_locked) && !is_locked(before);
        Self { command, outcome: &transition.outcome, begins_to_lock }
    }
}

/// The swaps of one command that had no answer: any of them may have taken place.
#[derive(Debug, Default)]
struct Unanswered {
    swaps: Vec<Applied>,
    error: Option<RegisterError>,
}

impl Unanswered {
    fn add(&mut self, swap: Applied, error: RegisterError) {
        self.swaps.push(swap);
        self.error = Some(error);
    }

    /// The swap that led to this record. Records of different writers differ by their nonces.
    fn find(&mut self, stored: Option<&Record>) -> Option<Applied> {
        let found = self.swaps.iter().position(|swap| Some(&swap.after) == stored)?;
        Some(self.swaps.swap_remove(found))
    }

    /// Whether others have changed the record since. A swap may then have taken place before theirs: to carry out the
    /// command once more would repeat its effect, and to call it refused would deny it.
    fn overtaken(&self, revision: Revision) -> bool {
        self.swaps.iter().any(|swap| swap.before.revision() != revision)
    }

    /// The error to report: while a swap had no answer, none may say that nothing was changed.
    fn or(&mut self, error: DriverError) -> DriverError {
        self.error.take().map_or(error, DriverError::Register)
    }
}

fn pauses() -> ExponentialBuilder {
    ExponentialBuilder::default().with_min_delay(PAUSE.0).with_max_delay(PAUSE.1).with_jitter()
}

fn in_flight(outcome: &Outcome) -> Option<Timestamp> {
    match outcome {
        Outcome::Refused(Refusal::InFlight { deadline }) => Some(*deadline),
        _ => None,
    }
}
