//! Platforms with a clock and threads, on the tokio runtime.

pub(crate) use task::spawn;
pub(crate) use time::{elapsed, since_1970, sleep};
pub(crate) use turns::Turns;

mod task;
mod time;
mod turns;
