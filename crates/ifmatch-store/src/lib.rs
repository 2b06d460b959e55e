//! The register that ifmatch keeps its records in: a trait of two methods, the driver that runs commands on it, an
//! in-memory register, and the conformance suite that every register must pass.
//!
//! ```
//! use ifmatch_core::lease::LeaseUse;
//! use ifmatch_core::command::{Command, Content, Outcome, Write};
//! use ifmatch_core::digest::ContentHash;
//! use ifmatch_core::precondition::Preconditions;
//! use ifmatch_store::{Driver, Key, MemoryRegister};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let driver = Driver::new(MemoryRegister::unbounded()).assume_absent();
//! let key = Key::new("greeting")?;
//! let write = Write {
//!     method: &http::Method::PUT,
//!     preconditions: &Preconditions::default(),
//!     content: Content::Hashed { hash: ContentHash::of(b"hello"), payload: b"hello".to_vec().into() },
//!     lease: LeaseUse::default(), based_on: None,
//!     request: None,
//!     nonce: ifmatch_store::nonce()?,
//! };
//! let applied = driver.apply(&key, &Command::Write(write)).await?;
//! assert!(matches!(applied.outcome, Outcome::Written(_)));
//! # Ok(())
//! # }
//! ```

mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod driver;
mod erased;
mod key;
mod memory;
mod places;
mod platform;
mod random;
pub mod register;
pub mod task;
mod watched;

pub use clock::{Clock, SystemClock};
pub use driver::Driver;
pub use erased::AnyRegister;
pub use key::Key;
pub use memory::MemoryRegister;
pub use places::Place;
pub use random::nonce;
pub use register::Register;
