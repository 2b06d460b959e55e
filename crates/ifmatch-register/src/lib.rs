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

mod ambiguous;
mod clocks;
mod combiner;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connect_error;
mod deadlines;
mod driver;
#[cfg(feature = "test-util")]
pub mod faulty;
mod key;
#[cfg(feature = "encoding")]
pub mod lanes;
mod memory;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "encoding")]
pub mod object;
mod recent;
#[cfg(feature = "encoding")]
mod reconnecting;
mod register;
#[cfg(feature = "encoding")]
mod scans;
mod wrapper;

pub use async_trait::async_trait;
pub use clocks::{ClockAhead, PeerClocks};
pub use clocks::{EngineClock, EngineTime};
pub use combiner::{Combiner, Staging};
pub use connect_error::{ConnectError, ConnectErrorKind};
pub use driver::{Driver, DriverError};
pub use ifmatch_core::command::Applied;
pub use ifmatch_core::group::Change;
pub use key::KeyLock;
pub use key::{InvalidKey, Key};
pub use memory::MemoryRegister;
pub use register::{
    Engine, Epoch, Guarantee, Register, RegisterError, RegisterErrorKind, Scan, Swap,
};
pub use wrapper::Wrapper;

/// No metrics, without the feature `metrics`.
#[cfg(not(feature = "metrics"))]
mod metrics {
    use crate::ambiguous::Resolution;

    #[cfg(feature = "encoding")]
    pub(crate) fn batch(_operation: &'static str, _calls: usize) {}

    pub(crate) fn ambiguous(_resolution: Resolution) {}

    pub(crate) fn contention() {}
}
