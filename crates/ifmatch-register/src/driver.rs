//! Runs commands on a register: load, apply, compare and swap, and retry after a conflict.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use ifmatch_core::command::{Applied, Begin, Command, Grant, Outcome, Refusal, Transition};
use ifmatch_core::date::Timestamp;
use ifmatch_core::group::{Change, Group};
use ifmatch_core::record::{Record, Revision};
use ifmatch_runtime::task::{self, Elapsed};
use ifmatch_runtime::{Clock, KeyedQueue, MAX_POLL_INTERVAL, RandomError, SystemClock, jittered};

use crate::ambiguous::Ambiguous;
use crate::combiner::Staging;
use crate::deadlines::Deadlines;
use crate::key::{Key, KeyLock, KeyLocks};
use crate::metrics;
use crate::recent::Recent;
use crate::register::{Register, RegisterError, RegisterErrorKind, Swap};

/// Maximum time for which a command that keeps conflicting with other writers is retried: clients wait no longer.
const MAX_CONTENTION: Duration = Duration::from_secs(10);
/// Maximum number of ambiguous swaps of one command.
const MAX_AMBIGUOUS: usize = 3;
/// Maximum error of the engine's time when a permit is granted, unless a tenth of its duration is less: the margin by
/// which handlers end before their permits.
const MAX_TIME_ERROR: Duration = Duration::from_secs(3);
/// Shortest and longest pause between swaps. Pauses between polls of a write in flight grow up to [`MAX_POLL_INTERVAL`].
/// Each is lengthened at random, to up to twice its length.
const PAUSE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(50));
/// Shortest and longest pause between attempts in the background to reach a register that failed.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Runs commands on a register.
///
/// One process's commands on a key queue up if they have to wait for each other. Correctness doesn't rely on this,
/// since the register decides between all processes, with one exception: if a permit has expired but its handler still
/// runs in this process, the [`KeyLock`] returned with it keeps other writers out. Clones share their queues and locks.
#[derive(Clone, Debug)]
pub struct Driver {
    shared: Arc<Shared>,
    initial: Record,
    /// Returns `true` for the keys of resources on which only the record is an authority.
    is_index: fn(&Key) -> bool,
    patience: Duration,
    /// `None` if each command begins with a load.
    recent: Option<Arc<Recent>>,
}

/// What a driver shares with its work in the background.
#[derive(Debug)]
struct Shared {
    register: Arc<dyn Register>,
    clock: Arc<dyn Clock>,
    waiters: KeyedQueue<Key>,
    locks: KeyLocks,
    deadlines: Deadlines,
}

/// A command failed without an outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The register failed. Unless the kind is [`RegisterErrorKind::Ambiguous`], nothing was changed.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Other writers changed the record during every attempt. Nothing was changed; try again later.
    #[error("other writers changed the record during every attempt: try again later")]
    Contention,
}

impl DriverError {
    /// Returns `true` if the command may have taken effect, or still may.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Register(error) if error.kind() == RegisterErrorKind::Ambiguous)
    }

    /// Returns the error again, for another command that failed for the same reason.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::Register(error) => Self::Register(error.duplicate()),
            Self::Contention => Self::Contention,
        }
    }
}

impl From<RandomError> for DriverError {
    fn from(error: RandomError) -> Self {
        Self::Register(error.into())
    }
}

impl Driver {
    /// Creates a driver with the system clock. A key without a record is an unknown resource.
    pub fn new(register: impl Register) -> Self {
        Self::with_clock(register, SystemClock)
    }

    /// Creates a driver with the given clock.
    pub fn with_clock(register: impl Register, clock: impl Clock) -> Self {
        Self::sharing(Arc::new(register), Arc::new(clock))
    }

    /// Creates a driver with a register and a clock that others hold too. [`Driver::with_clock`] would wrap them once more, and
    /// allocate a future more for each call.
    pub fn sharing(register: Arc<dyn Register>, clock: Arc<dyn Clock>) -> Self {
        let (waiters, locks, deadlines) = (
            KeyedQueue::default(),
            KeyLocks::default(),
            Deadlines::default(),
        );
        Self {
            shared: Arc::new(Shared {
                register,
                clock,
                waiters,
                locks,
                deadlines,
            }),
            initial: Record::unknown(),
            is_index: |_| false,
            patience: Duration::from_secs(10),
            recent: None,
        }
    }

    /// Lets commands begin from the record that this process has seen last, instead of a load. If another process has
    /// replaced it, the swap fails, and returns the record to begin from. Use this for small records. It has no effect
    /// on registers that can be asked without waiting (see [`Driver::revision_at_once`]), or on engines that fail over
    /// (see [`Engine::fails_over`](crate::Engine::fails_over)).
    ///
    /// ```text
    ///   A begins from r7                register           B
    ///                                   r7
    ///                                   r8 ◀────────────── swap r7 → r8: done
    ///   swap r7 → r9  ────────────────▶ r8: conflict
    ///   swap r8 → r10 ────────────────▶ r10
    /// ```
    ///
    /// An outcome without a swap is computed from a load, so nothing is refused because of an outdated record.
    #[must_use]
    pub fn remembering(mut self) -> Self {
        self.recent = Some(Arc::default());
        self
    }

    /// Treats a key without a record as an absent resource, for stores that use the register as their index.
    #[must_use]
    pub fn assume_absent(mut self) -> Self {
        self.initial = Record::absent();
        self.index_of(|_| true)
    }

    /// Selects the keys of resources that only the register knows. After a failover that may have lost swaps (see
    /// [`Epoch`](crate::Epoch)), their records are used as they are found, since nothing can be probed.
    #[must_use]
    pub fn index_of(mut self, is_index: fn(&Key) -> bool) -> Self {
        self.is_index = is_index;
        self
    }

    /// Sets how long [`Driver::apply_in_turn`] waits for a write in flight. Defaults to 10 seconds.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Returns the register.
    pub fn register(&self) -> &dyn Register {
        &*self.shared.register
    }

    /// Returns this process's own clock, for pauses, and for times that no record keeps.
    pub fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }

    /// Returns the time to compare deadlines with: the earliest bound of the engine's clock, or this process's clock if
    /// the engine keeps no time. It never breaks a permit early, and goes back only with the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.register()
            .engine()
            .time
            .map_or_else(|| self.clock().now(), |time| time.earliest)
    }

    /// Runs a future until a record's deadline, then drops it. See [`task::until`].
    ///
    /// # Errors
    /// [`Elapsed`] if the deadline has passed by [`Driver::now`].
    pub async fn until<T>(
        &self,
        deadline: Timestamp,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        task::until_by(|| self.now(), self.clock(), deadline, work).await
    }

    /// Loads the record of a resource.
    ///
    /// # Errors
    /// Fails if the register fails.
    pub async fn load(&self, key: &Key) -> Result<Record, DriverError> {
        let stored = self.stored(key).await?;
        Ok(self.view(key, stored, self.now()))
    }

    /// Returns the record that this process has seen last, if it remembers it and no write is in flight there, or else loads it. The
    /// record may have been replaced since: whatever is derived from it counts only if a swap that expects its revision succeeds.
    ///
    /// # Errors
    /// Same as [`Driver::load`].
    pub async fn recent(&self, key: &Key) -> Result<Record, DriverError> {
        let now = self.now();
        let seen = self.seen(key);
        let seen = seen
            .map(|seen| self.view(key, Some(seen), now))
            .filter(|seen| seen.permit(now).is_none());
        match seen {
            Some(seen) => Ok(seen),
            None => self.load(key).await,
        }
    }

    /// Loads what the register stores.
    async fn stored(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let stored = self.register().load(key).await;
        self.saw(key, stored.as_ref().map_or(None, Option::as_ref));
        stored
    }

    /// Takes note of a record. `None`: it is unknown, or there is none.
    fn saw(&self, key: &Key, record: Option<&Record>) {
        if let Some(recent) = &self.recent
            && !self.register().engine().fails_over
            && self.register().revision_at_once(key).is_none()
        {
            recent.saw(key, record);
        }
    }

    fn seen(&self, key: &Key) -> Option<Record> {
        self.recent
            .as_ref()?
            .get(key)
            .filter(|_| !self.register().engine().fails_over)
    }

    /// Returns a stored record as it must be read at `now`.
    fn view(&self, key: &Key, stored: Option<Record>, now: Timestamp) -> Record {
        let mut record = stored.unwrap_or_else(|| self.initial.clone());
        let lost = self.register().engine().epoch.lost;
        if lost != Revision::NONE && record.revision() <= lost && !(self.is_index)(key) {
            record = record.doubted(lost);
        }
        self.shared
            .deadlines
            .view(key, record, now, self.clock().now())
    }

    /// Returns the revision of a resource's record if the register knows it without waiting. See
    /// [`Register::revision_at_once`].
    pub fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.register().revision_at_once(key)
    }

    /// Runs a command.
    ///
    /// # Errors
    /// [`DriverError::Contention`] if the record changed during every attempt; [`DriverError::Register`] if the register
    /// failed. A refusal isn't an error but an [`Outcome::Refused`].
    pub async fn apply(&self, key: &Key, command: &Command<'_>) -> Result<Applied, DriverError> {
        self.apply_to(key, None, command).await
    }

    /// Runs a command on a record that was loaded earlier, which saves a load if the record hasn't changed since.
    ///
    /// If the swap finds another record, the command is applied to that one. An outcome that needs no swap is computed
    /// from a new load.
    ///
    /// ```
    /// use ifmatch_core::command::{Command, Commit, Content, Outcome};
    /// use ifmatch_register::{Driver, Key, MemoryRegister};
    /// # use ifmatch_core::command::Begin;
    /// # use ifmatch_core::precondition::Preconditions;
    /// # let ttl = std::time::Duration::from_secs(60);
    /// # let begin = Command::Begin(Begin::new(&http::Method::DELETE, &Preconditions::NONE, 7, ttl));
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let (driver, key) = (Driver::new(MemoryRegister::with_capacity(10)), Key::new("note")?);
    /// let begun = driver.apply(&key, &begin).await?;
    /// let Outcome::Granted(grant) = begun.outcome else { panic!("there is no other writer") };
    /// let commit = Command::Commit(Commit::new(grant.token, Content::Absent));
    /// driver.apply_to(&key, Some(begun.after), &commit).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Driver::apply`].
    pub async fn apply_to(
        &self,
        key: &Key,
        seen: Option<Record>,
        command: &Command<'_>,
    ) -> Result<Applied, DriverError> {
        self.apply_as(&mut Writer::Passing, key, seen, command, &|_| false)
            .await
    }

    /// Gives a permit back. If the register fails, keeps trying in the background until `deadline`, when the permit
    /// ends, since it keeps all writers away until then.
    ///
    /// ```text
    ///   writer                      register                    other writers
    ///   Begin ───────────────────▶  permit until 12:01:00
    ///   Commit ──────✕              (unreachable for a second)
    ///   Commit again, in the background ▶ no permit             write at 12:00:02, not at 12:01:00
    /// ```
    ///
    /// # Errors
    /// Same as [`Driver::apply`], for the first attempt.
    pub async fn give_back(
        &self,
        key: &Key,
        seen: Option<Record>,
        command: Command<'static>,
        deadline: Timestamp,
    ) -> Result<Applied, DriverError> {
        let result = self.apply_to(key, seen, &command).await;
        if result.is_err() {
            let (driver, key) = (self.clone(), key.clone());
            drop(task::detach(async move {
                driver
                    .retry_until(deadline, || async {
                        driver.apply(&key, &command).await.ok()
                    })
                    .await;
            }));
        }
        result
    }

    /// Aborts grants that the register didn't confirm, in the background, by their tokens.
    ///
    /// ```text
    ///   writer                      register
    ///   Begin ───────────────────▶  permit
    ///          ✕─────────────────── answer: the writer gets 503, and knows of no permit
    ///   Abort, in the background ▶  no permit
    /// ```
    ///
    /// While the record has the revision that the swap expected, the swap may still take place.
    fn abort_in_background(&self, key: &Key, ambiguous: &Ambiguous<Applied>) {
        for (expected, swap) in ambiguous.swaps() {
            let Outcome::Granted(Grant {
                token, deadline, ..
            }) = &swap.outcome
            else {
                continue;
            };
            let (driver, key, expected, token, deadline) =
                (self.clone(), key.clone(), *expected, *token, *deadline);
            drop(task::detach(async move {
                let abort = Command::Abort(token);
                let attempt = || async {
                    let applied = driver.apply(&key, &abort).await.ok()?;
                    let has_ended = applied.outcome == Outcome::Released
                        || applied.before.revision() != expected;
                    has_ended.then_some(())
                };
                driver.retry_until(deadline, attempt).await;
            }));
        }
    }

    /// Repeats an attempt, after a pause, until it has a result or the deadline has passed, but makes at least one.
    pub async fn retry_until<T, F>(&self, deadline: Timestamp, attempt: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Option<T>>,
    {
        let mut pause = RETRY_PAUSE.0;
        loop {
            self.clock().sleep(pause).await;
            let result = attempt().await;
            if result.is_some() || self.now() >= deadline {
                return result;
            }
            pause = (pause * 2).min(RETRY_PAUSE.1);
        }
    }

    /// Requests a permit, waiting in turn as [`Driver::apply_in_turn`] does. Returns it with a lock that keeps this
    /// process's other writers away: hold it until the handler has ended and its result is in the register.
    ///
    /// A writer that waits asks `is_overtaken` about each record that the writers before it leave. If it returns `true`, the outcome
    /// is [`Refusal::Stale`]: the writer learns that its condition is false without taking a permit.
    ///
    /// # Errors
    /// Same as [`Driver::apply`].
    pub async fn begin(
        &self,
        key: &Key,
        seen: Option<Record>,
        begin: Begin<'_>,
        is_overtaken: impl Fn(&Record) -> bool,
    ) -> Result<(Applied, Option<KeyLock<'_>>), DriverError> {
        let mut lock = None;
        let begin = Command::Begin(begin);
        let applied = self
            .in_turn(
                &mut Writer::Beginning(&mut lock),
                key,
                seen,
                &begin,
                is_overtaken,
            )
            .await?;
        let granted = matches!(applied.outcome, Outcome::Granted(_));
        Ok((applied, lock.filter(|_| granted)))
    }

    /// Runs a command that needs no write to be in flight. Waits in turn while one is.
    ///
    /// If the wait exceeds [`Driver::with_patience`], the outcome is [`Refusal::InFlight`].
    ///
    /// # Errors
    /// Same as [`Driver::apply`].
    pub async fn apply_in_turn(
        &self,
        key: &Key,
        command: &Command<'_>,
    ) -> Result<Applied, DriverError> {
        self.in_turn(&mut Writer::Passing, key, None, command, |_| false)
            .await
    }

    /// Runs a command for a writer once no write is in flight, or the patience has ended.
    async fn in_turn<'a>(
        &'a self,
        writer: &mut Writer<'_, 'a>,
        key: &Key,
        seen: Option<Record>,
        command: &Command<'_>,
        is_overtaken: impl Fn(&Record) -> bool,
    ) -> Result<Applied, DriverError> {
        // By the process's own clock: the engine's may stand still.
        let give_up = self.clock().now().saturating_add(self.patience);
        let applied = self
            .apply_as(writer, key, seen, command, &|_| false)
            .await?;
        if in_flight(&applied.outcome).is_none() {
            return Ok(applied);
        }
        // Joined before the record is read again, so no wakeup is missed.
        let mut turn = self.shared.waiters.join(key);
        let mut pauses = pauses(MAX_POLL_INTERVAL);
        loop {
            let applied = self
                .apply_as(writer, key, None, command, &is_overtaken)
                .await?;
            let Some(deadline) = in_flight(&applied.outcome) else {
                if matches!(applied.outcome, Outcome::Granted(_)) {
                    turn.leave_silently();
                }
                return Ok(applied);
            };
            let left = self.clock().now().until(give_up);
            if left.is_zero() {
                metrics::contention();
                return Ok(applied);
            }
            let pause = jittered(2 * pauses.next().unwrap_or(MAX_POLL_INTERVAL))
                .min(self.now().until(deadline))
                .min(left);
            let sleep = self.clock().sleep(pause.max(PAUSE.0));
            select(pin!(turn.woken()), pin!(sleep)).await;
        }
    }

    /// Runs a command for a writer, and wakes the next writer if this one has ended.
    async fn apply_as<'a>(
        &'a self,
        writer: &mut Writer<'_, 'a>,
        key: &Key,
        seen: Option<Record>,
        command: &Command<'_>,
        is_overtaken: &(impl Fn(&Record) -> bool + ?Sized),
    ) -> Result<Applied, DriverError> {
        let mut ambiguous = Ambiguous::default();
        let mut decide = |before: Record, now| {
            if is_overtaken(&before) {
                return Ok(Applied {
                    after: before.clone(),
                    before,
                    outcome: Outcome::Refused(Refusal::Stale),
                });
            }
            self.check_time(command)?;
            let mut transition = before.apply(command, now);
            if self.is_locked_out(
                writer,
                key,
                &Proposed::of(command, &before, &transition, now),
            ) {
                let deadline = before.permit(now).map_or(now, |permit| permit.deadline);
                let deadline = deadline.max(now.saturating_add(MAX_POLL_INTERVAL));
                transition = Transition::refused(Refusal::InFlight { deadline });
            }
            let after = transition.next.unwrap_or_else(|| before.clone());
            Ok(Applied {
                before,
                after,
                outcome: transition.outcome,
            })
        };
        let propose = |before, now| ready(decide(before, now));
        let applied = self
            .swap_until_done(&mut ambiguous, key, seen, propose)
            .await;
        ambiguous.resolve(applied.is_ok());
        if applied.is_err() {
            self.abort_in_background(key, &ambiguous);
        }
        if let Ok(Applied { outcome: Outcome::Written(_) | Outcome::Released, .. }) = applied
            // A writer that holds the lock wakes the next one by dropping it.
            && !self.shared.locks.is_locked(key)
        {
            self.shared.waiters.wake(key);
        }
        applied
    }

    /// Returns `true` if a running writer of this process prevents the proposed outcome.
    fn is_locked_out<'a>(
        &'a self,
        writer: &mut Writer<'_, 'a>,
        key: &Key,
        proposed: &Proposed<'_>,
    ) -> bool {
        match (writer, proposed.command, proposed.outcome) {
            (_, _, Outcome::Refused(Refusal::Lease(_) | Refusal::InFlight { .. })) => false,
            (Writer::Beginning(lock), Command::Begin(_), _) => {
                **lock = lock
                    .take()
                    .or_else(|| self.shared.locks.try_lock(key, &self.shared.waiters));
                lock.is_none()
            }
            (_, Command::Begin(_), _)
            | (_, Command::Lease(_), Outcome::Refused(Refusal::ProbeFirst)) => {
                self.shared.locks.is_locked(key)
            }
            (_, Command::Lease(_), _) => {
                proposed.begins_to_lock && self.shared.locks.is_locked(key)
            }
            _ => false,
        }
    }

    /// Refuses a permit if the engine's time isn't known precisely enough. The handler must end before any process can
    /// see its permit as expired, although it ends by the earliest possible time.
    fn check_time(&self, command: &Command<'_>) -> Result<(), RegisterError> {
        let ttl = match command {
            Command::Begin(begin) => begin.ttl,
            Command::Renew(renew) => renew.ttl,
            _ => return Ok(()),
        };
        let Some(time) = self.register().engine().time else {
            return Ok(());
        };
        if time.error() <= (ttl / 10).min(MAX_TIME_ERROR) {
            return Ok(());
        }
        Err(RegisterError::new(
            RegisterErrorKind::Unavailable,
            "the time of the register's engine, or of the other processes, is not known precisely",
        ))
    }

    /// Applies changes in order, and stores them by one swap, after what they refer to.
    ///
    /// # Errors
    /// Same as [`Driver::apply`], for all changes alike.
    pub(crate) async fn apply_group<C: Change, S: Staging<C>>(
        &self,
        key: &Key,
        changes: &[&C],
        staging: &S,
    ) -> Result<Group<C::Error, C::Context>, DriverError> {
        let mut ambiguous = Ambiguous::default();
        let propose = |before: Record, now| async move {
            let mut context = staging.prepare(&before, changes, now).await;
            loop {
                let mut group = before.apply_group(changes.iter().copied(), now, context);
                if group.next.is_none() {
                    return Ok(group);
                }
                match staging.stage(&mut group.context).await {
                    Ok(()) => return Ok(group),
                    Err(failed) => context = failed,
                }
            }
        };
        let group = self
            .swap_until_done(&mut ambiguous, key, None, propose)
            .await;
        ambiguous.resolve(group.is_ok());
        group
    }

    /// Loads, applies, and compares and swaps, until a swap is done or refused. Collects the unacknowledged swaps.
    ///
    /// `propose` returns the effect on a record. If it fails, it is called again with a new load, which samples the time again.
    async fn swap_until_done<E: Effect, P: Future<Output = Result<E, RegisterError>>>(
        &self,
        ambiguous: &mut Ambiguous<E>,
        key: &Key,
        seen: Option<Record>,
        mut propose: impl FnMut(Record, Timestamp) -> P,
    ) -> Result<E, DriverError> {
        let remembered = if seen.is_none() { self.seen(key) } else { None };
        let mut is_contended = false;
        let seen = seen.or(remembered);
        let mut is_loaded = seen.is_none();
        let mut stored = match seen {
            Some(seen) => Some(seen).filter(|seen| seen.revision() != Revision::NONE),
            None => self.stored(key).await?,
        };
        let give_up = self.clock().now().saturating_add(MAX_CONTENTION);
        let mut pauses = pauses(PAUSE.1);
        loop {
            if let Some(mine) = ambiguous.find(stored.as_ref()) {
                return Ok(mine);
            }
            let expected = stored.as_ref().map_or(Revision::NONE, Record::revision);
            if ambiguous.overtaken(expected) || ambiguous.count() >= MAX_AMBIGUOUS {
                return Err(ambiguous.or(DriverError::Contention));
            }
            let now = self.now();
            let proposed = propose(self.view(key, stored.take(), now), now).await;
            if !is_loaded
                && proposed
                    .as_ref()
                    .map_or(true, |effect| effect.next().is_none())
            {
                is_loaded = true;
                stored = self.stored(key).await?;
                continue;
            }
            let effect = proposed.map_err(|error| ambiguous.or(error.into()))?;
            let Some(next) = effect.next() else {
                // The ambiguous swap may still take place, so this outcome may be wrong.
                return ambiguous
                    .take_error()
                    .map_or(Ok(effect), |error| Err(error.into()));
            };
            is_loaded = true;
            let swapped = self
                .register()
                .compare_and_swap(key, expected, Some(next))
                .await;
            self.saw(key, seen_by(&swapped, next));
            match swapped {
                Ok(Swap::Done) => return Ok(effect),
                // A client that sends a swap again by itself meets its own success. Records of different writers differ
                // by their nonces.
                Ok(Swap::Conflict(found)) if found.as_ref() == Some(next) => return Ok(effect),
                Ok(Swap::Conflict(found)) => {
                    if !std::mem::replace(&mut is_contended, true) {
                        stored = found;
                        continue;
                    }
                }
                Err(error) if error.kind() == RegisterErrorKind::Ambiguous => {
                    ambiguous.add(expected, effect, error);
                }
                Err(error) => return Err(ambiguous.or(error.into())),
            }
            match pauses.next() {
                Some(pause) if self.clock().now() < give_up => {
                    self.clock().sleep(jittered(2 * pause)).await;
                }
                _ => {
                    metrics::contention();
                    return Err(ambiguous.or(DriverError::Contention));
                }
            }
            // A process without a pause replaces what the conflict has shown: without a new load, this one would lose each time.
            stored = self
                .stored(key)
                .await
                .map_err(|error| ambiguous.or(error.into()))?;
        }
    }
}

/// The effect of a swap.
pub(crate) trait Effect {
    /// Returns the record to swap in, or `None` if nothing changes.
    fn next(&self) -> Option<&Record>;
}

impl Effect for Applied {
    fn next(&self) -> Option<&Record> {
        Some(&self.after).filter(|after| after.revision() != self.before.revision())
    }
}

impl<E, X> Effect for Group<E, X> {
    fn next(&self) -> Option<&Record> {
        self.next.as_ref()
    }
}

/// The writer that a command runs for.
enum Writer<'p, 'a> {
    /// Needs no lock.
    Passing,
    /// Locks the key along with its permit.
    Beginning(&'p mut Option<KeyLock<'a>>),
}

/// A transition about to be proposed to the register.
struct Proposed<'t> {
    command: &'t Command<'t>,
    outcome: &'t Outcome,
    /// `true` if the transition locks a resource that wasn't locked before.
    begins_to_lock: bool,
}

impl<'t> Proposed<'t> {
    fn of(
        command: &'t Command<'t>,
        before: &Record,
        transition: &'t Transition,
        now: Timestamp,
    ) -> Self {
        let is_locked = |record: &Record| record.lease_state(now).is_locked();
        let begins_to_lock = transition.next.as_ref().is_some_and(is_locked) && !is_locked(before);
        Self {
            command,
            outcome: &transition.outcome,
            begins_to_lock,
        }
    }
}

/// Returns the record that a swap has shown, unless its response was lost.
fn seen_by<'a>(swapped: &'a Result<Swap, RegisterError>, next: &'a Record) -> Option<&'a Record> {
    match swapped {
        Ok(Swap::Done) => Some(next),
        Ok(Swap::Conflict(found)) => found.as_ref(),
        Err(_) => None,
    }
}

/// Returns the pauses between attempts. Each is twice as long as the one before it, up to a maximum.
fn pauses(max: Duration) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(PAUSE.0), move |pause| Some((*pause * 2).min(max)))
}

/// Returns the deadline of the write in flight for which the command was refused.
fn in_flight(outcome: &Outcome) -> Option<Timestamp> {
    match outcome {
        Outcome::Refused(Refusal::InFlight { deadline }) => Some(*deadline),
        _ => None,
    }
}
