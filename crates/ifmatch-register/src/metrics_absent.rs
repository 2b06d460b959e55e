//! No metrics, without the feature `metrics`.

use crate::ambiguous::Resolution;

#[cfg(feature = "encoding")]
pub(crate) fn batch(_operation: &'static str, _calls: usize) {}

pub(crate) fn ambiguous(_resolution: Resolution) {}

pub(crate) fn contention() {}
