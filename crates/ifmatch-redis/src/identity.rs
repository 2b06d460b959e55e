//! The identity of a register: a random name, and an epoch that rises when its server may have lost swaps.
//!
//! Each batch names the identity that its process knows, and the server carries it out only if that is still the current
//! one. A process therefore notices at once that the records are gone (`FLUSHALL`, an empty server), or that another
//! server has taken over.

use ifmatch_core::record::Revision;
use ifmatch_register::{ConnectError, ConnectErrorKind, Epoch};

use crate::error::unusable;

/// `name epoch replication-id lost`, as stored. The server has a new replication id after a restart and after a failover;
/// revisions up to `lost` may have been lost then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    stored: Vec<u8>,
    name: String,
    epoch: Epoch,
}

impl Identity {
    pub(crate) fn parse(stored: Vec<u8>) -> Result<Self, ConnectError> {
        let text = String::from_utf8_lossy(&stored).into_owned();
        let mut words = text.split(' ');
        let (name, number) = (words.next().unwrap_or_default(), words.next().and_then(|number| number.parse().ok()));
        let Some(number) = number else {
            return Err(unusable(ConnectErrorKind::Unsuitable, "its keys belong to another program"));
        };
        // There is none before the first failover.
        let lost = words.nth(1).and_then(|lost| lost.parse().ok()).map_or(Revision::NONE, Revision::new);
        Ok(Self { name: name.to_owned(), epoch: Epoch { number, lost }, stored })
    }

    /// Returns the epoch.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the stored text, which batches name.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// Accepts the identity found by a new connection in place of this one.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Lost`] if it is another register, and [`ConnectErrorKind::Unsuitable`] if it is from before a
    /// failover.
    pub(crate) fn becomes(&mut self, found: Self) -> Result<(), ConnectError> {
        if found.name != self.name {
            return Err(lost());
        }
        if found.epoch < self.epoch {
            let reason = "it is a former primary, which another server has replaced: stop it, or make it a replica";
            return Err(unusable(ConnectErrorKind::Unsuitable, reason));
        }
        if found.epoch > self.epoch {
            tracing::warn!(
                epoch = found.epoch.number,
                "the Redis server was restarted or replaced: a failover may have lost acknowledged swaps; earlier versions \
                 of resources that can be probed count as unknown"
            );
        }
        *self = found;
        Ok(())
    }
}

pub(crate) fn lost() -> ConnectError {
    let advice = "it was emptied or replaced by another one: restore its data, or restart all processes of ifmatch to \
                  begin with an empty register";
    unusable(ConnectErrorKind::Lost, advice)
}
