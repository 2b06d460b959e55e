//! A register that may lose acknowledged swaps, used where the operator accepts that.

use std::sync::Arc;

use ifmatch_core::record::Revision;
use ifmatch_register::{Engine, Guarantee, Key, Register, Wrapper};

/// A register with the guarantee that the operator assumes (`--register-may-lose`).
pub(crate) struct AcceptLosses(pub(crate) Arc<dyn Register>);

impl Wrapper for AcceptLosses {
    fn inner(&self) -> &dyn Register {
        &self.0
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.0.revision_at_once(key)
    }

    fn engine(&self) -> Engine {
        let engine = self.0.engine();
        let guarantee = match engine.guarantee {
            Guarantee::UntilFailover => Guarantee::Linearizable,
            other => other,
        };
        Engine { guarantee, ..engine }
    }
}
