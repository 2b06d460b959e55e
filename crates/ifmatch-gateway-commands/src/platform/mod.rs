//! What differs between systems: signals, the commands that run under a lock, the service manager, sockets, and files. [docs/platforms.md]
//! says what holds where.
//!
//! [docs/platforms.md]: https://github.com/ifmatch/ifmatch/blob/main/docs/platforms.md

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;

#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

pub use imp::{
    AskedSignal, ForwardedSignals, ReceivedSignal, RunningCommand, StopSignals, code,
    group_readable, identity, is_listening, lock_folder, prepare, tell_ready, tell_reloaded,
    tell_reloading, tell_stopping,
};
