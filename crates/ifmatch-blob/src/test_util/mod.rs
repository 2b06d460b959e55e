//! Helpers for tests of stores and dialects: a clock that tests move, and a store with hooks before its steps.

pub use clock::ManualClock;
pub use hooked::{Hook, Hooked, Step};

mod clock;
mod hooked;
