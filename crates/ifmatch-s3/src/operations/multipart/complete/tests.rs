//! Completions beside renewals, other completions, parts that arrive, and the ends of uploads.

use std::time::Duration;

use http_body_util::Full;
use ifmatch_blob::BlobService;
use ifmatch_blob::accounts::Accounts;
use ifmatch_blob::documents::Documents;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::BlobStore;
use ifmatch_blob::test_util::{Hooked, ManualClock, Step, Stop};
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_register::{Driver, MemoryRegister};
use s3s::S3ErrorCode;
use tempfile::TempDir;

use super::super::NewPart;
use super::super::claim::{RENEWAL, STALE};
use super::super::upload::{PARTS, UPLOADS, of_bucket};
use super::*;
use crate::bodies::checksum::ChecksumPlan;
use crate::convert::ObjectFields;

/// Far longer than any step takes.
const LIMIT: Duration = Duration::from_mins(1);

/// An upload with one part, and a stop.
struct Setup {
    backend: Backend,
    clock: ManualClock,
    stop: Stop,
    place: UploadLocation,
    part: StoredPart,
    _folder: TempDir,
}

/// The first completion stops before it reads the part.
async fn setup() -> Setup {
    setup_with(Stop::new(
        |step, container| step == Step::Open && *container == *PARTS,
        0,
    ))
    .await
}

/// Creates a bucket with an upload of one part, over a store with this stop.
async fn setup_with(stop: Stop) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::default();
    let driver = Driver::with_clock(Arc::new(MemoryRegister::unbounded()), clock.clone());
    let inner: Arc<dyn BlobStore> = Arc::new(
        IndexedStore::with_driver(folder.path(), driver)
            .await
            .unwrap(),
    );
    let store: Arc<dyn BlobStore> = Arc::new(Hooked {
        inner: Arc::clone(&inner),
        hook: stop.clone(),
    });
    let service = BlobService::with_clock(Arc::clone(&store), clock.clone());
    let backend = Backend {
        context: service.context().clone(),
        accounts: Accounts::development(),
        is_encrypted: false,
    };
    let container = ContainerName::new("docs").unwrap();
    let info = store
        .create_container(&container, BlobHeaders::default())
        .await
        .unwrap();
    let place = UploadLocation::new(container, &info, &"0".repeat(32));
    let (fields, checksum) = (ObjectFields::default(), ChecksumPlan::default());
    let upload = Upload {
        key: "a".into(),
        fields,
        checksum,
        initiated: 0,
        state: UploadState::Open,
    };
    place.save(&*inner, &upload, None).await.unwrap();
    let part = Put::new(Body::new(Full::new(Bytes::from("part"))));
    inner.put(&place.part(1).unwrap(), part).await.unwrap();
    let part = place.parts(&*inner, 0, usize::MAX).await.unwrap().remove(0);
    Setup {
        backend,
        clock,
        stop,
        place,
        part,
        _folder: folder,
    }
}

impl Setup {
    /// Returns a request to complete the upload with its part.
    fn completion(&self) -> CompletionRequest {
        let tag = convert::e_tag(self.part.tag.as_ref()).unwrap();
        let wanted = vec![WantedPart {
            number: 1,
            tag,
            checksum: Checksum::default(),
        }];
        let name = ifmatch_blob::name::BlobName::new("a").unwrap();
        CompletionRequest {
            backend: self.backend.clone(),
            blob: BlobPath {
                container: self.place.container.clone(),
                name,
            },
            place: self.place.clone(),
            write: WriteConditions {
                preconditions: ifmatch_core::precondition::Preconditions::NONE,
                request: None,
            },
            headers: HeaderMap::new(),
            parts: fingerprint(&wanted),
            wanted,
            size: None,
            kind: None,
        }
    }

    /// Begins a completion, and waits until it is about to read the part.
    async fn stopped_completion(&self) -> tokio::task::JoinHandle<S3Result<CompletedObject>> {
        let running = tokio::spawn(self.completion().run());
        let reached = tokio::time::timeout(LIMIT, self.stop.reached()).await;
        reached.expect("the completion reads the part within a minute");
        running
    }

    /// Lets a request go on, and waits for its end.
    async fn resume<T>(&self, running: tokio::task::JoinHandle<T>) -> T {
        self.stop.go_on();
        let ended = tokio::time::timeout(LIMIT, running).await;
        ended
            .expect("the request ends within a minute")
            .expect("no panic")
    }

    /// Stores the part as a request that began while the upload was open.
    async fn store_part(&self, bytes: &'static str) -> S3Result<()> {
        let part = NewPart {
            place: &self.place,
            key: "a",
            number: 1,
        };
        let put = Put::new(Body::new(Full::new(Bytes::from(bytes))));
        part.store(&self.backend, put, |failed| error::of_store(failed, false))
            .await
            .map(drop)
    }

    /// Aborts the upload if it is open.
    async fn abort(&self) -> bool {
        let store = &*self.backend.context.store;
        let Some(LoadedUpload { upload, tag }) = self.place.load(store).await.unwrap() else {
            return false;
        };
        let is_open = upload.state == UploadState::Open;
        if is_open {
            self.place.remove(store, tag.as_ref()).await.unwrap();
            self.place.remove_parts(store).await;
        }
        is_open
    }

    /// Returns the tags of the stored parts.
    async fn tags(&self) -> Vec<Option<EntityTag>> {
        let parts = self
            .place
            .parts(&*self.backend.context.store, 0, usize::MAX)
            .await
            .unwrap();
        parts.into_iter().map(|part| part.tag).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_lasts_as_long_as_its_request_works() {
    let setup = setup().await;
    let first = tokio::spawn(setup.completion().run());
    setup.stop.reached().await;
    for _ in 0..30 {
        setup.clock.advance(RENEWAL);
        // Longer than the renewal's timer, so the renewal comes first.
        tokio::time::sleep(RENEWAL + Duration::from_secs(1)).await;
        let refused = setup
            .completion()
            .run()
            .await
            .expect_err("the first request goes on");
        assert_eq!(*refused.code(), S3ErrorCode::SlowDown);
    }
    setup.stop.go_on();
    let done = first
        .await
        .unwrap()
        .expect("no other request completed the upload");
    let again = setup.completion().run().await.expect("it is complete");
    assert_eq!(again.tag, done.tag);
}

/// The request doesn't come to renew its claim, as if its process had stopped.
#[tokio::test]
async fn a_request_that_lost_its_claim_writes_nothing() {
    let setup = setup().await;
    let first = tokio::spawn(setup.completion().run());
    setup.stop.reached().await;
    setup
        .clock
        .advance(Duration::from_secs(STALE.unsigned_abs()));
    setup
        .completion()
        .run()
        .await
        .expect_err("it may still be running");
    setup.clock.advance(Duration::from_secs(1));
    let done = setup.completion().run().await.expect("it took over");
    setup.stop.go_on();
    let refused = first.await.unwrap().expect_err("its claim is lost");
    assert_eq!(*refused.code(), S3ErrorCode::SlowDown);
    let store = &setup.backend.context.store;
    let opened = store
        .open(&setup.completion().blob, Reading::HEAD)
        .await
        .unwrap()
        .expect("the object");
    assert_eq!(opened.info.tag, done.tag);
}

#[tokio::test]
async fn a_renewal_that_comes_late_does_not_undo_the_end() {
    let setup = setup().await;
    let LoadedUpload { upload, tag } = setup
        .place
        .load(&*setup.backend.context.store)
        .await
        .unwrap()
        .expect("the upload");
    let claim = UploadClaim::new(&setup.backend, &setup.place, upload, tag);
    claim.renew().await.unwrap();
    let done = UploadState::Done {
        parts: String::new(),
        tag: None,
        checksum: None,
    };
    claim.end(done.clone()).await.unwrap();
    claim.renew().await.unwrap();
    let found = setup
        .place
        .load(&*setup.backend.context.store)
        .await
        .unwrap()
        .expect("the upload");
    assert_eq!(found.upload.state, done);
}

/// Another part with the number of the one that the completion lists arrives late, and replaces it.
#[tokio::test]
async fn a_part_that_arrives_during_a_completion_stays_and_can_be_sent_again() {
    let mut setup = setup().await;
    let running = setup.stopped_completion().await;
    let refused = setup
        .store_part("late")
        .await
        .expect_err("the upload is being completed");
    assert_eq!(*refused.code(), S3ErrorCode::SlowDown);
    let left = setup.tags().await;
    assert!(
        left.len() == 1 && left[0] != setup.part.tag,
        "the part of the late attempt is left: {left:?}"
    );
    let refused = setup
        .resume(running)
        .await
        .expect_err("the listed part was replaced");
    assert_eq!(*refused.code(), S3ErrorCode::InvalidPart);
    let refused = setup
        .completion()
        .run()
        .await
        .expect_err("the listed part was replaced");
    assert_eq!(*refused.code(), S3ErrorCode::InvalidPart);
    setup
        .store_part("part")
        .await
        .expect("the upload takes parts again");
    setup.part.tag = setup.tags().await.remove(0);
    setup
        .completion()
        .run()
        .await
        .expect("the part is listed with its new tag");
}

/// An earlier attempt of the part that the completion lists arrives late, before the part is read, or before the upload is
/// completed with the tag of either response.
#[tokio::test]
async fn a_part_with_the_same_bytes_takes_the_place_of_the_listed_one() {
    let setup = setup().await;
    let running = setup.stopped_completion().await;
    setup
        .store_part("part")
        .await
        .expect_err("the upload is being completed");
    assert_ne!(setup.tags().await.first(), Some(&setup.part.tag));
    setup
        .resume(running)
        .await
        .expect("the part still has the listed bytes");
    let other = setup_with(Stop::new(|_, _| false, 0)).await;
    other.store_part("part").await.expect("the upload is open");
    assert_ne!(other.tags().await.first(), Some(&other.part.tag));
    other
        .completion()
        .run()
        .await
        .expect("the tag names these bytes");
    let replaced = setup_with(Stop::new(|_, _| false, 0)).await;
    replaced
        .store_part("other")
        .await
        .expect("the upload is open");
    let refused = replaced
        .completion()
        .run()
        .await
        .expect_err("the tag names other bytes");
    assert_eq!(*refused.code(), S3ErrorCode::InvalidPart);
}

#[tokio::test]
async fn a_part_that_arrives_after_the_end_of_its_upload_is_removed() {
    for is_completed in [true, false] {
        let setup = setup().await;
        if is_completed {
            let running = setup.stopped_completion().await;
            setup
                .resume(running)
                .await
                .expect("no other request replaced the part");
        } else {
            assert!(setup.abort().await);
        }
        let refused = setup
            .store_part("part")
            .await
            .expect_err("the upload has ended");
        assert_eq!(
            *refused.code(),
            S3ErrorCode::NoSuchUpload,
            "completed: {is_completed}"
        );
        assert_eq!(setup.tags().await, [], "completed: {is_completed}");
    }
}

/// The request that completes the upload stops, as if its process had ended.
#[tokio::test]
async fn an_upload_whose_completion_ended_in_a_crash_takes_parts_again() {
    let mut setup = setup().await;
    let stopped = setup.stopped_completion().await;
    // Otherwise it would renew its claim.
    stopped.abort();
    assert!(stopped.await.expect_err("it was stopped").is_cancelled());
    setup
        .clock
        .advance(Duration::from_secs(STALE.unsigned_abs() + 1));
    setup
        .store_part("part")
        .await
        .expect("nothing renews the claim anymore");
    setup.part.tag = setup.tags().await.remove(0);
    setup.completion().run().await.expect("it took over");
}

/// Matches the steps between which another request may end the upload.
fn is_of_upload(_: Step, container: &ContainerName) -> bool {
    [&*UPLOADS, &*PARTS].contains(&container)
}

/// Runs a request, and runs another one right before each of its steps in turn, until it has no such step.
async fn before_each_step<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    request: impl Fn(&Setup) -> F,
    other: impl AsyncFn(&Setup, tokio::task::JoinHandle<T>),
) -> usize {
    for passing in 0.. {
        let setup = setup_with(Stop::new(is_of_upload, passing)).await;
        let mut running = tokio::spawn(request(&setup));
        let is_stopped = async {
            tokio::select! {
                () = setup.stop.reached() => true,
                _ = &mut running => false,
            }
        };
        if !tokio::time::timeout(LIMIT, is_stopped)
            .await
            .expect("the request stops or ends within a minute")
        {
            return passing;
        }
        other(&setup, running).await;
    }
    unreachable!("a request has an end");
}

#[tokio::test]
async fn one_of_two_completions_writes_and_the_other_is_told_so() {
    let other = async |setup: &Setup, running| {
        let other = setup.completion().run().await;
        let first = setup.resume(running).await;
        let again = setup.completion().run().await.expect("it is complete");
        for outcome in [other, first] {
            match outcome {
                Ok(done) => assert_eq!(done.tag, again.tag),
                Err(refused) => assert_eq!(*refused.code(), S3ErrorCode::SlowDown, "{refused:?}"),
            }
        }
    };
    let steps = before_each_step(|setup| setup.completion().run(), other).await;
    assert!(steps > 3, "only {steps} steps");
}

#[tokio::test]
async fn a_completion_finds_an_upload_aborted_or_completes_it() {
    let other = async |setup: &Setup, running| {
        let is_aborted = setup.abort().await;
        let outcome: S3Result<CompletedObject> = setup.resume(running).await;
        assert_eq!(outcome.is_ok(), !is_aborted, "{outcome:?}");
        if let Err(refused) = outcome {
            let codes = [S3ErrorCode::NoSuchUpload, S3ErrorCode::SlowDown];
            assert!(codes.contains(refused.code()), "{refused:?}");
        }
    };
    let steps = before_each_step(|setup| setup.completion().run(), other).await;
    assert!(steps > 3, "only {steps} steps");
}

#[tokio::test]
async fn an_upload_is_listed_with_all_its_parts_or_as_ended() {
    let list = |setup: &Setup| {
        let (store, place) = (
            Arc::clone(&setup.backend.context.store),
            setup.place.clone(),
        );
        async move { place.find_with_parts(&*store, "a", 0, usize::MAX).await }
    };
    for is_completed in [true, false] {
        let other = async |setup: &Setup, running| {
            if is_completed {
                setup
                    .completion()
                    .run()
                    .await
                    .expect("no other request completes the upload");
            } else {
                assert!(setup.abort().await);
            }
            let listed: S3Result<(LoadedUpload, Vec<StoredPart>)> = setup.resume(running).await;
            match listed {
                Ok((found, parts)) => {
                    assert!(parts.len() == 1 || found.upload.state != UploadState::Open);
                }
                Err(refused) => assert_eq!(*refused.code(), S3ErrorCode::NoSuchUpload),
            }
        };
        assert_eq!(
            before_each_step(list, other).await,
            2,
            "the listing, and the load of the upload"
        );
    }
}

/// Otherwise, a client that begins uploads without an end could fill the memory by listing them.
#[tokio::test]
async fn a_list_of_uploads_takes_memory_for_each() {
    let Setup { backend, place, .. } = setup().await;
    let memory = |bytes| Documents::new(bytes).begin(None);
    let found = of_bucket(&backend, &place, &mut memory(4_096)).await;
    assert_eq!(found.unwrap().len(), 1);
    let refused = of_bucket(&backend, &place, &mut memory(64)).await;
    assert_eq!(
        *refused.unwrap_err().kind(),
        StoreErrorKind::Crowded,
        "an upload has more bytes"
    );
}
