//! The way to one of the places for requests that are worked on, for those who take it later than at the desk.

use std::fmt;
use std::sync::Arc;

use crate::gateway::Desk;
use crate::peer::Peer;

/// The way to a place.
#[derive(Clone)]
pub(crate) struct Entrance {
    desk: Arc<Desk>,
    peer: Arc<Peer>,
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Entered(Entrance);

impl Entrance {
    /// The way of this client to the places at this desk.
    pub(crate) fn new(desk: Arc<Desk>, peer: Arc<Peer>) -> Self {
        Self { desk, peer }
    }

    /// Takes a place; `None` if there is none for this client.
    pub(crate) fn enter(&self) -> Option<Entered> {
        self.desk.enter(&self.peer).then(|| Entered(self.clone()))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.desk.leave(&self.0.peer);
    }
}

impl fmt::Debug for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entrance")
    }
}
