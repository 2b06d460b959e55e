//! Garbage collection of uploads that were neither completed nor aborted, and of parts without an upload.

use std::time::Duration;

use futures_util::TryStreamExt;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use ifmatch_blob::store::{BlobEntry, ListQuery, Reading, StoreError};

use super::upload::{PARTS, UPLOADS, remove};

/// Retention of uploads since their last change, and of parts.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);
/// Number of entries read from the store at a time.
const STEP: usize = 500;

/// Removes old uploads, and old parts without an upload. Returns the number of entries removed.
pub(crate) async fn collect(context: &Context) -> Result<u64, StoreError> {
    Ok(sweep(context, &UPLOADS).await? + sweep(context, &PARTS).await?)
}

async fn sweep(context: &Context, container: &ContainerName) -> Result<u64, StoreError> {
    let store = &*context.store;
    let query = ListQuery::first(STEP);
    let mut entries = query.blobs(store, container);
    let mut removed = 0;
    while let Some(entry) = entries.try_next().await? {
        if !is_old(context, &entry) || has_upload(context, &entry).await? {
            continue;
        }
        let path = BlobPath { container: container.clone(), name: entry.name };
        // An entry that was written meanwhile is kept.
        removed += u64::from(remove(store, &path, entry.info.tag.as_ref()).await.is_ok());
    }
    Ok(removed)
}

fn is_old(context: &Context, entry: &BlobEntry) -> bool {
    let age = context.wall().last_modified().unix().saturating_sub(entry.info.last_modified.unix());
    u64::try_from(age).is_ok_and(|age| age > MAX_AGE.as_secs())
}

/// Returns `true` for a part whose upload exists. The name of an upload, `bucket/created/id`, is that of no upload's part.
async fn has_upload(context: &Context, entry: &BlobEntry) -> Result<bool, StoreError> {
    let Some((upload, _)) = entry.name.as_str().rsplit_once('/') else { return Ok(false) };
    let Ok(name) = BlobName::new(upload) else { return Ok(false) };
    let path = BlobPath { container: UPLOADS.clone(), name };
    Ok(context.store.open(&path, Reading::HEAD.without_lease()).await?.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use http_body_util::Full;
    use ifmatch_blob::BlobService;
    use ifmatch_blob::headers::BlobHeaders;
    use ifmatch_blob::store::{BlobStore, Put, Upload as Body};
    use ifmatch_blob::test_util::ManualClock;
    use ifmatch_blob_embedded::EmbeddedStore;
    use ifmatch_register::{Driver, MemoryRegister};

    use super::super::upload::{Place, State, Upload};
    use super::*;
    use crate::checksum::Plan;
    use crate::convert::Fields;

    /// A store with the bucket `docs`, and two uploads of one part each; of the second, only the part is left.
    async fn uploads_and_parts(store: &dyn BlobStore) -> [Place; 2] {
        let container = ContainerName::new("docs").unwrap();
        let info = store.create_container(&container, BlobHeaders::default()).await.unwrap();
        let places = ["0", "1"].map(|digit| Place::new(container.clone(), &info, &digit.repeat(32)));
        let (fields, checksum) = (Fields::default(), Plan::default());
        let upload = Upload { key: "a".into(), fields, checksum, initiated: 0, state: State::Open };
        places[0].save(store, &upload, None).await.unwrap();
        for place in &places {
            let part = Put::new(Body::new(Full::new(Bytes::from("part"))));
            store.put(&place.part(1).unwrap(), part).await.unwrap();
        }
        places
    }

    #[tokio::test]
    async fn uploads_and_parts_are_removed_a_week_after_their_last_change() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::default().with_timers();
        let driver = Driver::with_clock(Arc::new(MemoryRegister::unbounded()), clock.clone());
        let store: Arc<dyn BlobStore> = Arc::new(EmbeddedStore::with_driver(folder.path(), driver).await.unwrap());
        let service = BlobService::with_clock(Arc::clone(&store), clock.clone());
        let places = uploads_and_parts(&*store).await;
        let left = async || {
            let uploads = usize::from(places[0].load(&*store).await.unwrap().is_some());
            let parts = [places[0].parts(&*store, 0).await.unwrap(), places[1].parts(&*store, 0).await.unwrap()];
            (uploads, parts.map(|parts| parts.len()))
        };
        assert_eq!(collect(service.context()).await.unwrap(), 0);
        assert_eq!(left().await, (1, [1, 1]), "all are too recent");
        clock.advance(MAX_AGE);
        assert_eq!(collect(service.context()).await.unwrap(), 0);
        clock.advance(Duration::from_mins(2));
        assert_eq!(collect(service.context()).await.unwrap(), 3);
        assert_eq!(left().await, (0, [0, 0]));
    }
}
