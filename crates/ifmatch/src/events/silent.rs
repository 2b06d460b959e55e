//! No events, without the feature `tracing`.

use super::Decision;

pub(super) fn decided(_: &Decision) {}
