//! Events for `tracing`.

use super::Decision;

pub(super) fn decided(decision: &Decision) {
    let (status, reason) = (decision.status.as_u16(), decision.reason);
    if decision.status.is_server_error() {
        tracing::warn!(target: "ifmatch", status, reason, "the layer has answered");
    } else {
        tracing::debug!(target: "ifmatch", status, reason, "the layer has answered");
    }
}
