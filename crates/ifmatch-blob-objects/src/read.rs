//! Reading objects. Everything read through one opening belongs to one version.

use std::future::ready;
use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join;
use futures_util::{StreamExt, TryStreamExt};
use http_body::Frame;
use http_body_util::StreamBody;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, ObjectStore};

use super::attributes::Current;
use super::direct::DirectBody;
use super::failure;
use super::shared::Shared;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Extent, Opened, Reading, Reply, Source, StoreError, StoreErrorKind};

impl Shared {
    /// Opens an object. Returns `None` if there is none or it is not a blob.
    pub(super) async fn read(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        let location = self.location(blob)?;
        let options = GetOptions::new().with_head(reading.extent != Extent::All);
        let (found, members) = join(self.get(&location, options), self.members(&blob.container)).await;
        let Some((result, current)) = found? else { return Ok(None) };
        if !members?.contain(&current) {
            return Ok(None);
        }
        let mut info = current.info.clone();
        if reading.lease {
            info.lease = self.lease_of(blob).await?;
        }
        let source: Box<dyn Source> = match reading.extent {
            Extent::None => Box::new(Nothing),
            Extent::All => Box::new(Version::new(self, location, current, Some(body(result)))),
            Extent::Ranges => Box::new(Version::new(self, location, current, None)),
        };
        Ok(Some(Opened { info, source }))
    }
}

/// A source without bytes.
struct Nothing;

impl Source for Nothing {
    fn read(&mut self, _range: Option<Range<u64>>) -> Reply<'_, BlobBody> {
        Box::pin(async { Ok(BlobBody::empty()) })
    }
}

/// One version of an object.
struct Version {
    objects: Arc<dyn ObjectStore>,
    location: Path,
    current: Current,
    /// All bytes, if they were requested with the properties.
    whole: Option<BlobBody>,
}

impl Version {
    fn new(shared: &Shared, location: Path, current: Current, whole: Option<BlobBody>) -> Self {
        Self { objects: Arc::clone(&shared.backing.objects), location, current, whole }
    }

    /// Requests bytes on the condition that they are still those of this version, and verifies that, since some stores
    /// ignore the condition.
    fn part(&self, range: Option<Range<u64>>) -> impl Future<Output = Result<BlobBody, StoreError>> + Send + 'static {
        let (objects, location) = (Arc::clone(&self.objects), self.location.clone());
        let (e_tag, tag) = (self.current.version.e_tag.clone(), self.current.info.tag.clone());
        async move {
            let Some(e_tag) = e_tag else {
                let why = "the store has no tag for reading parts of one version";
                return Err(StoreError::new(StoreErrorKind::Unavailable, why));
            };
            let options = GetOptions::new().with_if_match(Some(e_tag)).with_range(range.map(GetRange::Bounded));
            match objects.get_opts(&location, options).await {
                Ok(result) if Current::new(&result.meta, &result.attributes).info.tag == tag => Ok(body(result)),
                Ok(_) | Err(Error::Precondition { .. } | Error::NotFound { .. }) => Err(replaced()),
                Err(error) => Err(failure::of_read(error)),
            }
        }
    }
}

impl Source for Version {
    fn read(&mut self, range: Option<Range<u64>>) -> Reply<'_, BlobBody> {
        let range = range.filter(|range| *range != (0..self.current.info.length));
        match self.whole.take() {
            Some(whole) if range.is_none() => Box::pin(ready(Ok(whole))),
            _ => Box::pin(self.part(range)),
        }
    }
}

/// Returns the bytes of a response, as the platform's own body if there is one.
fn body(result: GetResult) -> BlobBody {
    if let Some(direct) = DirectBody::of(&result) {
        return direct;
    }
    BlobBody::stream(StreamBody::new(result.into_stream().map_ok(Frame::data).map_err(failure::of_read).boxed()))
}

fn replaced() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the blob was replaced while it was read, try again")
}
