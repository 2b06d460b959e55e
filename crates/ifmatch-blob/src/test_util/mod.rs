//! Helpers for tests of stores and dialects: a manual clock, hooks before a store's steps, limited invocations, reopening.

pub use hooked::{Hook, Hooked, Step};
pub use ifmatch_runtime::ManualClock;
pub use invocation::Invocation;
pub use reopen::reopen;

mod hooked;
mod invocation;
mod reopen;
