//! A deferred request slot, for requests that take theirs after the front desk.

use std::fmt;
use std::sync::Arc;

use crate::gateway::Desk;
use crate::peer::Peer;

/// Access to a request slot.
#[derive(Clone)]
pub(crate) struct Entrance {
    desk: Arc<Desk>,
    peer: Arc<Peer>,
}

/// A request slot, released on drop.
#[derive(Debug)]
pub(crate) struct Entered(Entrance);

impl Entrance {
    /// Returns this client's access to the slots of this desk.
    pub(crate) fn new(desk: Arc<Desk>, peer: Arc<Peer>) -> Self {
        Self { desk, peer }
    }

    /// Takes a slot. Returns `None` if there is none for this client.
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
