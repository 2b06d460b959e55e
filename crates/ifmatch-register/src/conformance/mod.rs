//! The test suite that every register must pass:
//!
//! ```
//! use ifmatch_register::{MemoryRegister, conformance::{self, Traits}};
//!
//! # async fn test() {
//! conformance::run(MemoryRegister::unbounded(), Traits::default()).await;
//! # }
//! ```
//!
//! Each check uses its own keys, so the register may have other records, and the suite can run repeatedly on one
//! register. Run it on tokio's multi-threaded runtime, so that the races run in parallel.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "a test suite reports failures by panicking")]

mod contract;
pub mod history;
mod listing;
#[cfg(unix)]
mod processes;
mod race;
mod shared;
pub mod workload;

use std::sync::Arc;

use ifmatch_core::command::Content;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Record;

use crate::key::Key;
use crate::register::Register;
#[cfg(unix)]
pub use processes::run_in_two_processes;
use shared::Handles;

/// Properties in which registers may differ.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Traits {
    /// Number of tasks in a race. Defaults to 16; use fewer for a slow backend.
    pub racers: usize,
    /// Number of times that each task must win. Defaults to 20.
    pub rounds: usize,
}

impl Default for Traits {
    fn default() -> Self {
        Self { racers: 16, rounds: 20 }
    }
}

impl Traits {
    /// Sets the size of the races.
    #[must_use]
    pub fn with_race(mut self, racers: usize, rounds: usize) -> Self {
        self.racers = racers;
        self.rounds = rounds;
        self
    }
}

/// Checks the whole contract of [`Register`] through two handles, as two processes would have them.
///
/// Each call of a check goes through another handle than the call before, and so do the calls of the races.
///
/// # Panics
/// As for [`run`].
///
/// ```
/// use std::sync::Arc;
/// use ifmatch_register::MemoryRegister;
/// use ifmatch_register::conformance::{self, Traits};
///
/// # async fn test() {
/// let register = Arc::new(MemoryRegister::unbounded());
/// conformance::run_shared(async || Arc::clone(&register), Traits::default()).await;
/// # }
/// ```
pub async fn run_shared<R: Register>(open: impl AsyncFn() -> R, traits: Traits) {
    run(Handles::new([Arc::new(open().await), Arc::new(open().await)]), traits).await;
}

/// Checks the whole contract of [`Register`].
///
/// # Panics
/// If the register violates the contract. The message states the requirement.
pub async fn run(register: impl Register, traits: Traits) {
    let register: Arc<dyn Register> = Arc::new(register);
    contract::absent_key_loads_nothing(&*register).await;
    contract::created_once(&*register).await;
    contract::replaced_at_the_expected_revision_only(&*register).await;
    contract::forgotten_at_the_expected_revision_only(&*register).await;
    contract::every_part_of_a_record_is_kept(&*register).await;
    contract::keys_are_distinguished(&*register).await;
    contract::large_payloads_are_kept(&*register).await;
    listing::pages_cover_the_prefix_in_order(&*register).await;
    listing::listing_shows_current_records(&*register).await;
    listing::each_page_is_as_fresh_as_a_load(&*register).await;
    race::one_creator(&register, traits).await;
    race::increments_are_exact(&register, traits).await;
    race::permits_exclude_each_other(&register, traits).await;
    race::reads_never_go_back(&register, traits).await;
    race::histories_are_linearizable(&register, traits).await;
}

/// Returns a key that is unique to this check and run.
fn fresh_key(check: &str) -> Key {
    let nonce = ifmatch_runtime::nonce().expect("the system gives random numbers");
    Key::new(format!("conformance/{check}/{nonce:016x}")).expect("the key is short")
}

/// Returns the content of a write.
fn content(bytes: &[u8]) -> Content {
    Content::Hashed { hash: ContentHash::of(bytes), payload: bytes.to_vec().into() }
}

/// Returns an unconditional PUT of some bytes.
fn put<'a>(bytes: &[u8], preconditions: &'a Preconditions) -> ifmatch_core::command::Write<'a> {
    ifmatch_core::command::Write::new(
        &http::Method::PUT,
        preconditions,
        content(bytes),
        ifmatch_runtime::nonce().expect("the system gives random numbers"),
    )
}

/// Returns the record after a write of some bytes.
fn written(before: &Record, bytes: &[u8]) -> Record {
    let none = Preconditions::default();
    let command = ifmatch_core::command::Command::Write(put(bytes, &none));
    let now = before.revision().timestamp();
    before.apply(&command, now).next.expect("an unconditional write is carried out")
}
