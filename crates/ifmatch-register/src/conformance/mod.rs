//! The test suite that every register must pass:
//!
//! ```
//! use ifmatch_register::{MemoryRegister, conformance::{self, RaceSize}};
//!
//! # async fn test() {
//! conformance::run(MemoryRegister::unbounded(), RaceSize::default()).await;
//! # }
//! ```
//!
//! Each check uses its own keys, so the register may have other records, and the suite can run repeatedly on one
//! register. Run it on tokio's multi-threaded runtime, so the races run in parallel.

#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test suite reports failures by panicking"
)]

mod contract;
mod handles;
pub mod history;
#[cfg(unix)]
mod processes;
mod race;
pub mod workload;

use std::sync::Arc;

use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Record;

use crate::key::Key;
use crate::register::Register;
use handles::Handles;
#[cfg(unix)]
pub use processes::run_in_two_processes;

/// The size of the races. Use a smaller one for a slow engine.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RaceSize {
    /// Number of tasks in a race. Defaults to 16.
    pub racers: usize,
    /// Number of times that each task must win. Defaults to 20.
    pub rounds: usize,
}

impl Default for RaceSize {
    fn default() -> Self {
        Self {
            racers: 16,
            rounds: 20,
        }
    }
}

impl RaceSize {
    /// Creates a size: the number of tasks, and the number of times that each one must win.
    pub fn new(racers: usize, rounds: usize) -> Self {
        Self { racers, rounds }
    }
}

/// Checks the whole contract of [`Register`] through two handles, as two processes would have them.
///
/// Each call goes through a different handle from the previous one, in the races too.
///
/// # Panics
/// Same as [`run`].
///
/// ```
/// use std::sync::Arc;
/// use ifmatch_register::MemoryRegister;
/// use ifmatch_register::conformance::{self, RaceSize};
///
/// # async fn test() {
/// let register = Arc::new(MemoryRegister::unbounded());
/// conformance::run_shared(async || Arc::clone(&register), RaceSize::default()).await;
/// # }
/// ```
pub async fn run_shared<R: Register>(open: impl AsyncFn() -> R, size: RaceSize) {
    run(
        Handles::new([Arc::new(open().await), Arc::new(open().await)]),
        size,
    )
    .await;
}

/// Checks the whole contract of [`Register`].
///
/// # Panics
/// Panics if the register violates the contract. The message states the requirement.
pub async fn run(register: impl Register, size: RaceSize) {
    let register: Arc<dyn Register> = Arc::new(register);
    contract::absent_key_loads_nothing(&*register).await;
    contract::created_once(&*register).await;
    contract::replaced_at_the_expected_revision_only(&*register).await;
    contract::forgotten_at_the_expected_revision_only(&*register).await;
    contract::every_part_of_a_record_is_kept(&*register).await;
    contract::keys_are_distinguished(&*register).await;
    contract::large_payloads_are_kept(&*register).await;
    contract::pages_cover_the_prefix_in_order(&*register).await;
    contract::listing_shows_current_records(&*register).await;
    contract::each_page_is_as_fresh_as_a_load(&*register).await;
    race::one_creator(&register, size).await;
    race::increments_are_exact(&register, size).await;
    race::permits_exclude_each_other(&register, size).await;
    race::reads_never_go_back(&register, size).await;
    race::histories_are_linearizable(&register, size).await;
}

/// Returns a key that is unique to this check and run.
fn fresh_key(check: &str) -> Key {
    let nonce = ifmatch_runtime::nonce().expect("the system gives random numbers");
    Key::new(format!("conformance/{check}/{nonce:016x}")).expect("the key is short")
}

/// Returns the content of a write.
fn content(bytes: &[u8]) -> Content {
    Content::Hashed {
        hash: ContentHash::of(bytes),
        payload: bytes.to_vec().into(),
    }
}

/// Returns an unconditional PUT of some bytes.
fn put<'a>(bytes: &[u8], preconditions: &'a Preconditions) -> Write<'a> {
    Write::new(
        &http::Method::PUT,
        preconditions,
        content(bytes),
        ifmatch_runtime::nonce().expect("the system gives random numbers"),
    )
}

/// Returns the record after a write of some bytes.
fn written(before: &Record, bytes: &[u8]) -> Record {
    let none = Preconditions::default();
    let command = Command::Write(put(bytes, &none));
    let now = before.revision().timestamp();
    before
        .apply(&command, now)
        .next
        .expect("an unconditional write is carried out")
}
