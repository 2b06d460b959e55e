//! Helpers for tests of stores and dialects: a manual clock, hooks before a store's steps, limited invocations, reopening.

pub use clock::ManualClock;
pub use hooked::{Hook, Hooked, Step};
pub use invocation::Invocation;
pub use reopen::reopen;

mod clock;
mod hooked;
mod invocation;
mod reopen;
