//! Helpers for tests of stores and dialects: a clock that tests move, a store with hooks before its steps, and reopening.

pub use clock::ManualClock;
pub use hooked::{Hook, Hooked, Step};
pub use reopen::reopen;

mod clock;
mod hooked;
mod reopen;
