//! A register that may lose acknowledged swaps, used where the operator accepts that.

use std::sync::Arc;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Engine, Guarantee, Key, Register, RegisterError, Scan, Swap, async_trait};

/// A register with the guarantee that the operator assumes (`--register-may-lose`).
pub(crate) struct AcceptLosses(pub(crate) Arc<dyn Register>);

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Register for AcceptLosses {
    fn engine(&self) -> Engine {
        let engine = self.0.engine();
        let guarantee = match engine.guarantee {
            Guarantee::UntilFailover => Guarantee::Linearizable,
            other => other,
        };
        Engine { guarantee, ..engine }
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.0.load(key).await
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.0.revision_at_once(key)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.0.compare_and_swap(key, expected, next).await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.0.scan(scan).await
    }
}
