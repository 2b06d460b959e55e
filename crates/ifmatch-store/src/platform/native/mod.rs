//! Platforms with a clock and threads, on the tokio runtime.

pub(crate) use task::spawn;
pub(crate) use time::{interval, since_1970, sleep};
pub(crate) use turns::Turns;

#[cfg_attr(any(target_os = "linux", target_os = "android"), path = "boot_time.rs")]
mod elapsed;
mod task;
mod time;
mod turns;
