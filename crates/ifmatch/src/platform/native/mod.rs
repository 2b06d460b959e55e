//! Platforms with a clock and threads.

pub(crate) use gates::Gates;

mod gates;
