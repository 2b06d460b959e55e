//! Replacement for the clouds in a build without them.

use std::sync::Arc;

use object_store::{ObjectStore, ObjectStoreScheme};
use url::Url;

use crate::failure::{OpenError, OpenErrorKind};

/// Reports that this build can't connect.
pub(super) fn connect(
    _scheme: &ObjectStoreScheme,
    url: &Url,
    _settings: impl Iterator<Item = (String, String)>,
    _max_retries: usize,
) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let what = format!(
        "this build can't use {url}. Add `--features cloud` to the cargo command that built it"
    );
    Err(OpenError::new(OpenErrorKind::Settings, what))
}
