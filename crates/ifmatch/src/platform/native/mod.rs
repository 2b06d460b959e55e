//! Platforms with a clock and threads.

pub(crate) use gates::Gates;
pub(crate) use memory::Memory;

mod gates;
mod memory;
