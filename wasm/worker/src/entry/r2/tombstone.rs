//! Deletions on a condition, which R2 lacks: an object is first replaced by a tombstone, on the condition that it is unchanged.
//!
//! The tombstone is the deletion: no reader sees it as an object. It is then removed without a condition, so nobody may replace it in
//! the meantime:
//!
//! ```text
//!   deletes                                    creates
//!   replaces version 1 by a tombstone
//!                                              finds the tombstone: waits, and tries again
//!   removes the tombstone
//!                                              creates version 2
//!
//!   deletes                                    creates
//!   replaces version 1 by a tombstone, ends
//!                                              a minute later: replaces the tombstone, if it is unchanged
//! ```
//!
//! A removal that reaches R2 more than a minute after the tombstone would delete a later version. So it is repeated only after R2 has
//! refused it, and begins early enough: a request to R2 ends after 25 seconds.

use std::collections::HashMap;
use std::time::Duration;

use ifmatch_blob_objects::TooSoon;
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, SystemClock, nonce};
use object_store::path::Path;
use object_store::{Error, Result, UpdateVersion};
use worker::{Bucket, Data, Date, Object};

use super::put::unchanged;
use super::{TIMEOUT, failure, within_limits};

/// Name of the custom metadata that marks a tombstone.
const MARK: &str = "ifmatch-deleted";
/// Time in milliseconds after which a tombstone may be replaced, since the request that removes it must have ended.
const LASTS: u64 = 60_000;
/// Time since the request that makes a tombstone until which a removal may begin. Even if R2 answers as late as it may, the
/// removal ends 5 seconds before [`LASTS`].
const REMOVABLE: Duration = Duration::from_millis(LASTS - TIMEOUT as u64 - 5_000);
/// Pause before a removal is repeated.
const WAIT: Duration = Duration::from_millis(1_100);
/// Maximum number of these pauses.
const WAITS: u32 = 5;

/// Returns `true` for a tombstone. The object must be described.
pub(super) fn is_tombstone(object: &Object) -> bool {
    object
        .custom_metadata()
        .is_ok_and(|custom| custom.contains_key(MARK))
}

/// Deletes an object if it is still this version.
pub(super) async fn delete(
    bucket: &Bucket,
    location: &Path,
    version: &UpdateVersion,
) -> Result<()> {
    // Its own bytes: the tags of two tombstones differ.
    let bytes = nonce()
        .map_err(|error| Error::Generic {
            store: "R2",
            source: error.into(),
        })?
        .to_be_bytes()
        .to_vec();
    let request = bucket.put(location.as_ref(), Data::Bytes(bytes));
    let mark = HashMap::from([(MARK.to_owned(), "1".to_owned())]);
    let request = request
        .custom_metadata(mark)
        .only_if(unchanged(version, true)?);
    let begun = SystemClock.now();
    let tombstone = within_limits(location, request.execute()).await?;
    tombstone.ok_or_else(|| failure::changed(location, Some(version)))?;
    // It is deleted already. What remains is replaced by the next creation.
    let delete = || within_limits(location, bucket.delete(location.as_ref()));
    if let Err(error) = remove(delete, begun, &SystemClock).await {
        tracing::info!(%location, %error, "a tombstone remains until the blob is created again");
    }
    Ok(())
}

/// Removes a tombstone, whose request has begun at a time. R2 takes one write of a key per second, and this is the second one: a
/// removal that it refuses didn't happen, and is repeated.
async fn remove(
    delete: impl AsyncFn() -> Result<()>,
    begun: Timestamp,
    clock: &impl Clock,
) -> Result<()> {
    let mut waits = WAITS;
    while begun.until(clock.now()) <= REMOVABLE {
        match delete().await {
            Err(error) if failure::is_too_soon(&error) && waits > 0 => waits -= 1,
            removed => return removed,
        }
        clock.sleep(WAIT).await;
    }
    Err(Error::Generic {
        store: "R2",
        source: "it is too late to remove the tombstone: it may have been replaced".into(),
    })
}

/// Returns the version of a tombstone that a creation may replace, or `None` if there is another object.
///
/// # Errors
/// [`TooSoon`] if the request that made it may still remove it.
pub(super) async fn replaceable(bucket: &Bucket, location: &Path) -> Result<Option<UpdateVersion>> {
    let found = within_limits(location, bucket.head(location.as_ref())).await?;
    let Some(tombstone) = found.filter(is_tombstone) else {
        return Ok(None);
    };
    let uploaded = tombstone.uploaded().as_millis();
    if Date::now().as_millis().saturating_sub(uploaded) < LASTS {
        return Err(Error::Generic {
            store: "R2",
            source: Box::new(TooSoon),
        });
    }
    Ok(Some(UpdateVersion {
        e_tag: Some(tombstone.http_etag()),
        version: Some(uploaded.to_string()),
    }))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use ifmatch_runtime::{ManualClock, async_trait};

    use super::*;

    /// A clock that waits advance.
    struct Hasty(ManualClock);

    #[async_trait]
    impl Clock for Hasty {
        fn now(&self) -> Timestamp {
            self.0.now()
        }

        fn wall(&self) -> Timestamp {
            self.0.wall()
        }

        async fn sleep(&self, duration: Duration) {
            self.0.advance(duration);
        }
    }

    /// R2 refuses each removal, as late as it may.
    #[tokio::test]
    async fn every_removal_ends_before_the_tombstone_may_be_replaced() {
        let clock = Hasty(ManualClock::default());
        let begun = clock.now();
        let ends = RefCell::new(Vec::new());
        let delete = async || {
            clock.sleep(Duration::from_millis(TIMEOUT.into())).await;
            ends.borrow_mut().push(begun.until(clock.now()));
            Err(Error::Generic {
                store: "R2",
                source: Box::new(TooSoon),
            })
        };
        remove(delete, begun, &clock).await.unwrap_err();
        let (ends, lasts) = (ends.into_inner(), Duration::from_millis(LASTS));
        assert!(
            ends.len() > 1 && ends.iter().all(|end| *end < lasts),
            "{ends:?}"
        );
    }
}
