//! Reading objects. Everything read through one opening belongs to one version.

use std::future::ready;
use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join;
use futures_util::{StreamExt, TryStreamExt};
use http_body::Frame;
use http_body_util::StreamBody;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Extent, Opened, Reading, Reply, Source, StoreError, StoreErrorKind};
use ifmatch_core::range::RangeSpec;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, ObjectStore};

use crate::attributes::StoredVersion;
use crate::direct::DirectBody;
use crate::failure;
use crate::store_state::StoreState;

impl StoreState {
    /// Opens an object. Returns `None` if there is none or it isn't a blob.
    pub(super) async fn read(
        &self,
        blob: &BlobPath,
        reading: Reading,
    ) -> Result<Option<Opened>, StoreError> {
        let location = self.location(blob)?;
        let (found, members) = join(
            self.get_extent(&location, reading.extent),
            self.members(&blob.container),
        )
        .await;
        let Some((current, held)) = found? else {
            return Ok(None);
        };
        if !members?.contain(&current) {
            return Ok(None);
        }
        let mut info = current.info.clone();
        if reading.lease {
            info.lease = self.lease_of(blob).await?;
        }
        let source: Box<dyn Source> = match reading.extent {
            Extent::None => Box::new(Nothing),
            Extent::All | Extent::Range(_) | Extent::Ranges => Box::new(VersionSource {
                objects: Arc::clone(&self.backing.objects),
                location,
                current,
                held,
            }),
        };
        Ok(Some(Opened { info, source }))
    }

    /// Requests an object, with the bytes that are likely to be read.
    async fn get_extent(
        &self,
        location: &Path,
        extent: Extent,
    ) -> Result<Option<(StoredVersion, Option<HeldBytes>)>, StoreError> {
        let options = match extent {
            Extent::None | Extent::Ranges => return self.get_properties(location).await,
            Extent::All => GetOptions::new(),
            Extent::Range(spec) => match range_of(spec) {
                Some(range) => GetOptions::new().with_range(Some(range)),
                None => return self.get_properties(location).await,
            },
        };
        let is_part = options.range.is_some();
        let found = match self.backing.objects.get_opts(location, options).await {
            Err(error) if is_part && failure::may_be_of_range(&error) => {
                return self.get_properties(location).await;
            }
            found => self.read_answer(found)?,
        };
        Ok(found.map(|(result, current)| (current, Some((result.range.clone(), body(result))))))
    }

    async fn get_properties(
        &self,
        location: &Path,
    ) -> Result<Option<(StoredVersion, Option<HeldBytes>)>, StoreError> {
        let found = self
            .get(location, GetOptions::new().with_head(true))
            .await?;
        Ok(found.map(|(_, current)| (current, None)))
    }
}

/// Bytes that a store sent along with the properties, and their range.
type HeldBytes = (Range<u64>, BlobBody);

/// The length that no object reaches: 2^53 - 1 bytes, JavaScript's last exact integer. S3 and R2 end at 5 TiB, and some servers
/// refuse a number that is far beyond.
const LONGEST: u64 = (1 << 53) - 1;

/// Returns the range to request, or `None` if it begins where no object has bytes.
fn range_of(spec: RangeSpec) -> Option<GetRange> {
    match spec {
        RangeSpec::From(first, _) if first >= LONGEST => None,
        RangeSpec::From(first, last) if last < LONGEST => Some(GetRange::Bounded(first..last + 1)),
        RangeSpec::From(first, _) => Some(GetRange::Offset(first)),
        RangeSpec::Suffix(length) => Some(GetRange::Suffix(length.min(LONGEST))),
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
struct VersionSource {
    objects: Arc<dyn ObjectStore>,
    location: Path,
    current: StoredVersion,
    held: Option<HeldBytes>,
}

impl VersionSource {
    /// Requests bytes on the condition that the object still has this version, and verifies that, since some stores
    /// ignore the condition.
    fn part(
        &self,
        range: Option<Range<u64>>,
    ) -> impl Future<Output = Result<BlobBody, StoreError>> + Send + 'static {
        let (objects, location) = (Arc::clone(&self.objects), self.location.clone());
        let (e_tag, tag) = (
            self.current.version.e_tag.clone(),
            self.current.info.tag.clone(),
        );
        async move {
            let Some(e_tag) = e_tag else {
                let why = "the store has no tag for reading parts of one version";
                return Err(StoreError::new(StoreErrorKind::Unavailable, why));
            };
            let options = GetOptions::new()
                .with_if_match(Some(e_tag))
                .with_range(range.map(GetRange::Bounded));
            match objects.get_opts(&location, options).await {
                Ok(result)
                    if StoredVersion::new(&result.meta, &result.attributes)
                        .info
                        .tag
                        == tag =>
                {
                    Ok(body(result))
                }
                Ok(_) | Err(Error::Precondition { .. } | Error::NotFound { .. }) => Err(replaced()),
                Err(error) => Err(failure::of_read(error)),
            }
        }
    }
}

impl Source for VersionSource {
    fn read(&mut self, range: Option<Range<u64>>) -> Reply<'_, BlobBody> {
        let whole = 0..self.current.info.length;
        let range = range.filter(|range| *range != whole);
        match self.held.take() {
            Some((held, body)) if held == *range.as_ref().unwrap_or(&whole) => {
                Box::pin(ready(Ok(body)))
            }
            _ => Box::pin(self.part(range)),
        }
    }
}

/// Returns the bytes of a response, as the platform's own body if there is one.
fn body(result: GetResult) -> BlobBody {
    if let Some(direct) = DirectBody::of(&result) {
        return direct;
    }
    BlobBody::stream(StreamBody::new(
        result
            .into_stream()
            .map_ok(Frame::data)
            .map_err(failure::of_read)
            .boxed(),
    ))
}

fn replaced() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "the blob was replaced while it was read, try again",
    )
}
