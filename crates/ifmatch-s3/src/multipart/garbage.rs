//! Garbage collection of uploads that were neither completed nor aborted, and of parts without an upload.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::ready;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::{BlobName, BlobPath};
use ifmatch_blob::store::{Reading, StoreError};
use ifmatch_blob::sweep::{IsUsed, remove_old};

use super::upload::{PARTS, UPLOADS};

/// Retention of uploads since their last change, and of parts.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);
/// Removes old uploads, and old parts without an upload. Returns the number of entries removed. Continues an interrupted sweep.
pub(crate) async fn collect(context: &Context) -> Result<u64, StoreError> {
    let uploads = (&*UPLOADS, (|_, _| ready(Ok(false)).boxed()) as IsUsed);
    let parts = (&*PARTS, (|context, part| has_upload(context, part).boxed()) as IsUsed);
    remove_old(context, "uploads", MAX_AGE, &[uploads, parts]).await
}

/// Returns `true` for a part whose upload exists.
async fn has_upload(context: &Context, part: &BlobPath) -> Result<bool, StoreError> {
    let Some((upload, _)) = part.name.as_str().rsplit_once('/') else { return Ok(false) };
    let Ok(name) = BlobName::new(upload) else { return Ok(false) };
    let upload = BlobPath { container: UPLOADS.clone(), name };
    Ok(context.store.open(&upload, Reading::HEAD.without_lease()).await?.is_some())
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
    use ifmatch_blob::name::ContainerName;

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
