//! Random bytes by the crate getrandom: from the operating system, or from JavaScript's `crypto`.

pub(crate) use getrandom::{Error as FillError, fill};
