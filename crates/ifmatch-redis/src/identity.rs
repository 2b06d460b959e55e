//! The identity of a register: a random name, and an epoch that rises when its server may have lost swaps.
//!
//! Each batch names the identity that its process knows, and the server carries it out only if that is still the current
//! one. A process therefore notices at once that the records are gone (`FLUSHALL`, an empty server), or that another
//! server has taken over.

use crate::error::{ConnectError, ConnectErrorKind};

/// `name epoch replication-id`, as stored. The server has a new replication id after a restart and after a failover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    stored: Vec<u8>,
    name: String,
    epoch: u64,
}

impl Identity {
    pub(crate) fn parse(stored: Vec<u8>) -> Result<Self, ConnectError> {
        let text = String::from_utf8_lossy(&stored).into_owned();
        let mut words = text.split(' ');
        let (name, epoch) = (words.next().unwrap_or_default(), words.next().and_then(|epoch| epoch.parse().ok()));
        let Some(epoch) = epoch else {
            return Err(ConnectError::new(ConnectErrorKind::Unsuitable, "its keys belong to another program"));
        };
        Ok(Self { name: name.to_owned(), epoch, stored })
    }

    /// Returns the stored text, which batches name.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// Accepts the identity found by a new connection in place of this one.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Lost`] if it is another register.
    pub(crate) fn becomes(&mut self, found: Self) -> Result<(), ConnectError> {
        if found.name != self.name {
            return Err(lost());
        }
        if found.epoch > self.epoch {
            tracing::warn!(
                epoch = found.epoch,
                "the Redis server was restarted or replaced: a failover may have lost acknowledged swaps"
            );
        }
        *self = found;
        Ok(())
    }
}

pub(crate) fn lost() -> ConnectError {
    let advice = "it was emptied or replaced by another one: restore its data, or restart all processes of ifmatch to \
                  begin with an empty register";
    ConnectError::new(ConnectErrorKind::Lost, advice)
}
