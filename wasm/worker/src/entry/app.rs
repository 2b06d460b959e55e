//! The blob or table service, assembled once per isolate. This sends no requests.

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use ifmatch_azure::AzureDialect;
use ifmatch_azure_tables::TableService;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::cors;
use ifmatch_blob::store::StoreError;
use ifmatch_blob::waits::Waits;
use ifmatch_blob::{BlobService, BlobStore};
use ifmatch_blob_objects::{BackingStore, ObjectBlobs, StoreCapabilities};
use ifmatch_runtime::SystemClock;
use tower_service::Service;
use worker::{Bucket, Env, Result, web_sys};

use super::edge;
use super::edge::body::EdgeBody;
use super::front::{self, Front};
use super::held::BodyRoom;
use super::loopback::is_loopback;
use super::metadata_cache::MetadataCache;
use super::r2::R2Bucket;
use super::r2::direct::RuntimeHash;
use super::settings::{Serves, WorkerSettings};
use crate::bindings::{missing, variable};
use crate::records::{Kept, RecordObjects};
use crate::tasks::subrequests;

/// Name of the R2 bucket.
const BUCKET: &str = "BUCKET";

/// Reason for rejecting requests to a development Worker that other machines can reach.
const OPEN_TO_ALL: &str = "IFMATCH_DEVELOPMENT authorizes every request, and applies only to requests to localhost or \
                           a loopback address: set IFMATCH_WRITE_TOKEN or IFMATCH_ACCOUNTS with `wrangler secret put`";

/// Time for which reads may reuse the response of a container's object. During it, a read may return a blob that an
/// unanswered write left in a container deleted by another isolate.
const CONTAINER_MEMORY: Duration = Duration::from_secs(5);

/// Maximum number of reads of an isolate that wait for a change.
const MAX_WAITS: usize = 64;
/// Maximum duration of a wait. The requests to R2 and objects meanwhile stay far below the limit of any plan.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// Time between two reads of a wait.
const WAIT_INTERVAL: Duration = Duration::from_secs(2);

thread_local! {
    /// The assembled service.
    static APP: RefCell<Option<App>> = const { RefCell::new(None) };
}

/// State shared by all requests. Cheap to clone.
#[derive(Clone)]
struct App {
    front: Arc<Front>,
    service: Serving,
    /// The blobs, for upkeep.
    blobs: ObjectBlobs,
    /// `true` if all requests are authorized, so only this machine may send them.
    is_development: bool,
}

/// The service that the settings choose.
#[derive(Clone)]
enum Serving {
    Blobs(BlobService),
    Tables(TableService),
}

/// Answers a request.
pub(crate) async fn answer(request: web_sys::Request, env: Env) -> Result<worker::Response> {
    let parsed = match edge::from_js(&request) {
        Ok(parsed) => parsed,
        Err(error) => return edge::to_js(&http::Method::GET, front::malformed(&error)),
    };
    let method = parsed.method().clone();
    let answered = match opened(&env) {
        Ok(app) if app.is_development && !is_loopback(&request.url()) => {
            front::unusable(parsed.uri().path(), OPEN_TO_ALL)
        }
        Ok(app) => {
            let fields = app.front.cross_origin(&parsed);
            let mut answer = app.answer(parsed).await;
            cors::add(fields, answer.headers_mut());
            answer
        }
        Err(why) => front::unusable(parsed.uri().path(), &why),
    };
    edge::to_js(&method, answered)
}

/// Removes uncommitted blocks or the entities of deleted tables, and what is left of deleted containers.
pub(crate) async fn collect(env: &Env) {
    let Ok(app) = opened(env) else { return };
    match app.collect().await {
        Ok(entries) => tracing::info!(entries, "removed unreachable entries"),
        Err(error) => {
            tracing::warn!(%error, "unreachable entries could not be removed, and stay until the next run");
        }
    }
}

/// Returns the retention of a record. Records of blobs expire since R2 has the same state. The record of a deleted container
/// hides the objects of late writes, so [`collect`] removes it along with them.
fn kept(key: &str) -> Kept {
    if key.starts_with("b/") {
        Kept::WhileBusy
    } else {
        Kept::Always
    }
}

/// Returns the R2 bucket of the blobs.
///
/// # Errors
/// The error says what wrangler.toml needs.
fn bucket(env: &Env) -> Result<Bucket> {
    env.bucket(BUCKET).map_err(|error| {
        let how = "[[r2_buckets]] with binding = \"BUCKET\" and the bucket_name of yours";
        missing(BUCKET, "an R2 bucket", how, &error)
    })
}

/// Returns the service, assembled by the first request. Errors in the settings are logged, and returned for each request.
fn opened(env: &Env) -> std::result::Result<App, String> {
    if let Some(app) = APP.with_borrow(Clone::clone) {
        return Ok(app);
    }
    let app =
        App::open(env).inspect_err(|why| worker::console_error!("ifmatch cannot serve: {why}"))?;
    APP.set(Some(app.clone()));
    Ok(app)
}

impl App {
    fn open(env: &Env) -> std::result::Result<Self, String> {
        let bucket = bucket(env).map_err(|error| error.to_string())?;
        let settings =
            WorkerSettings::read(|name| variable(env, name)).map_err(|error| error.to_string())?;
        subrequests::set_limit(settings.max_requests);
        let objects = Arc::new(if settings.leases {
            R2Bucket::new(bucket)
        } else {
            R2Bucket::new(bucket).by_date()
        });
        let backing = BackingStore::new(objects.clone())
            .described_by(objects.clone())
            .with_allowance(subrequests::left)
            .hashed_by(RuntimeHash::begin)
            .with_prefix(settings.prefix.as_str().into())
            .takes_uploads()
            .with_container_memory(CONTAINER_MEMORY);
        // R2's documentation promises all capabilities.
        let blobs = if settings.leases {
            let records = RecordObjects::open(env).map_err(|error| error.to_string())?;
            ObjectBlobs::trusting(
                backing,
                Arc::new(records.kept(kept)),
                StoreCapabilities::FULL,
            )
            .map_err(|error| error.to_string())?
        } else {
            ObjectBlobs::unrecorded(backing.deletes_if(objects), StoreCapabilities::FULL)
        };
        let store: Arc<dyn BlobStore> = Arc::new(blobs.clone());
        let store: Arc<dyn BlobStore> = match settings.max_staleness {
            Duration::ZERO => store,
            bound => Arc::new(MetadataCache::new(store, bound, Arc::new(SystemClock))),
        };
        let service = match settings.serves {
            Serves::Blobs => {
                let service = BlobService::new(store)
                    .dialect(AzureDialect::new(settings.accounts))
                    .waits(
                        Waits::new(MAX_WAITS)
                            .longest(LONGEST_WAIT)
                            .interval(WAIT_INTERVAL),
                    )
                    .require_preconditions(settings.required);
                Serving::Blobs(match settings.max_body {
                    Some(bytes) => service.max_body(bytes),
                    None => service,
                })
            }
            Serves::Tables => Serving::Tables(TableService::new(store).accounts(settings.accounts)),
        };
        let is_development = settings.access.is_open();
        Ok(Self {
            front: Arc::new(Front::new(settings.access, settings.serves, settings.cors)),
            service,
            blobs,
            is_development,
        })
    }

    /// Removes unreachable entries, and then the records of deleted containers. Returns their number.
    async fn collect(&self) -> std::result::Result<u64, StoreError> {
        let entries = match &self.service {
            Serving::Blobs(blobs) => ifmatch_azure::collect_garbage(blobs.context()).await?,
            Serving::Tables(tables) => tables.collect().await? as u64,
        };
        Ok(entries + self.blobs.forget_idle().await?)
    }

    async fn answer(self, request: Request<EdgeBody>) -> Response<BlobBody> {
        if let Some(answer) = self.front.answer(&request) {
            return answer;
        }
        let Some(room) = BodyRoom::take(request.method(), request.headers()) else {
            return front::busy();
        };
        let request = request.map(|body| body.limited_by(&room));
        let answer: std::result::Result<Response<BlobBody>, Infallible> = match self.service {
            Serving::Blobs(mut service) => service.call(request).await,
            Serving::Tables(mut service) => service.call(request).await,
        };
        match answer {
            // The service takes it for an incomplete body.
            Ok(_) if room.is_exceeded() => front::busy(),
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }
}
