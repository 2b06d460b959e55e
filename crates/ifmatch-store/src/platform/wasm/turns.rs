//! The queue of this process's writers at each key, where nobody can be called: workerd lets no request wake another
//! one, whose input and output would then be used on behalf of the first. Those who wait look again after a pause.

use std::future::{Future, pending};

use crate::key::Key;

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Turns;

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Turn;

impl Turns {
    /// Joins the queue at a key.
    pub(crate) fn join(&self, _: &Key) -> Turn {
        Turn
    }

    /// Says that a write at this key has ended.
    pub(crate) fn ended(&self, _: &Key) {}
}

impl Turn {
    /// Waits until a write at this key has ended: for ever.
    pub(crate) fn called(&self) -> impl Future<Output = ()> {
        pending()
    }

    /// Leaves the queue.
    pub(crate) fn win(self) {}
}
