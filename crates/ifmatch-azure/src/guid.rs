//! Random GUIDs.

use ifmatch_core::lease::LeaseId;
use ifmatch_runtime::nonce;

/// Returns a random GUID, if the platform provides randomness.
pub(crate) fn random() -> Option<LeaseId> {
    let numbers = u128::from(nonce().ok()?) << 64 | u128::from(nonce().ok()?);
    Some(LeaseId::from_random(numbers.to_ne_bytes()))
}
