//! Registers keep ifmatch's records: the [`Register`] trait, the [`Driver`] that runs commands on a register, an
//! in-memory register, and the conformance suite that every register must pass.
//!
//! ```
//! use ifmatch_core::lease::LeaseUse;
//! use ifmatch_core::command::{Command, Content, Outcome, Write};
//! use ifmatch_core::digest::ContentHash;
//! use ifmatch_core::precondition::Preconditions;
//! use ifmatch_register::{Driver, Key, MemoryRegister};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let driver = Driver::new(MemoryRegister::unbounded()).assume_absent();
//! let key = Key::new("greeting")?;
//! let write = Write::new(&http::Method::PUT, &Preconditions::NONE, Content::Hashed { hash: ContentHash::of(b"hello"), payload: b"hello".to_vec().into() }, ifmatch_runtime::nonce()?);
//! let applied = driver.apply(&key, &Command::Write(write)).await?;
//! assert!(matches!(applied.outcome, Outcome::Written(_)));
//! # Ok(())
//! # }
//! ```

// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Start here. The contract: a `register`, which keeps a record for each `key`, and a `wrapper` of one. `memory` is a register, and
// `faulty` another one, for tests. `conformance` has the tests for all.
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "test-util")]
pub mod faulty;
mod key;
mod memory;
mod register;
mod wrapper;

// The `driver`, which runs commands on a register. `recent` saves it loads, `ambiguous` finds out what became of a swap without an
// answer, and `deadlines` ends what a clock far ahead has written. The `combiner` carries out many changes of one record by one swap.
mod ambiguous;
mod combiner;
mod deadlines;
mod driver;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics_absent.rs"]
mod metrics;
mod recent;

// For the author of a register: `clocks`, for the time of an engine and for processes whose clocks are ahead; `lanes`, which batch calls,
// over connections that are `reconnecting`, beside the one for `scans`; `object`, for stores of objects; and `connect_error`.
mod clocks;
mod connect_error;
#[cfg(feature = "encoding")]
pub mod lanes;
#[cfg(feature = "encoding")]
pub mod object;
#[cfg(feature = "encoding")]
mod reconnecting;
#[cfg(feature = "encoding")]
mod scans;

pub use async_trait::async_trait;
pub use clocks::{ClockAhead, EngineClock, EngineTime, PeerClocks};
pub use combiner::{Combiner, Staging};
pub use connect_error::{ConnectError, ConnectErrorKind};
pub use driver::{Driver, DriverError};
pub use ifmatch_core::command::Applied;
pub use ifmatch_core::group::Change;
pub use key::{InvalidKey, Key, KeyLock};
pub use memory::MemoryRegister;
pub use register::{
    Engine, Epoch, Guarantee, Register, RegisterError, RegisterErrorKind, Scan, Swap,
};
pub use wrapper::Wrapper;
