//! The identity of a register, by which connections notice a failover and a lost register.

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
    /// Parses the stored text.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Unsuitable`] if it is another program's.
    pub(crate) fn parse(stored: Vec<u8>) -> Result<Self, ConnectError> {
        let text = String::from_utf8_lossy(&stored).into_owned();
        let mut words = text.split(' ');
        let name = words.next().unwrap_or_default();
        let Some(number) = words.next().and_then(|number| number.parse().ok()) else {
            let reason = "its keys belong to another program";
            return Err(unusable(ConnectErrorKind::Unsuitable, reason));
        };
        // There is none before the first failover.
        let lost = words.nth(1).and_then(|lost| lost.parse().ok());
        let lost = lost.map_or(Revision::NONE, Revision::new);
        Ok(Self {
            name: name.to_owned(),
            epoch: Epoch { number, lost },
            stored,
        })
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
            let reason = "it is a former primary. Stop it, or make it a replica";
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

/// Returns the error of a server that no longer has the register.
pub(crate) fn lost() -> ConnectError {
    let advice = "it was emptied or replaced. Restore its data, or restart all ifmatch processes to start with an empty \
                  register";
    unusable(ConnectErrorKind::Lost, advice)
}
