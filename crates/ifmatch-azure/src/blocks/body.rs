//! The blocks of a list as one body.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::{BlobStore, BoxError, Reading, Source, Upload};

use crate::block_storage::staging::{StagedBlock, StagingOwner};

/// The location of a block's bytes.
pub(super) enum BlockSegment {
    /// A staged block.
    Staged(StagedBlock),
    /// A range of the current version of the blob.
    Current(Range<u64>),
}

/// Set if a staged block, or the container, was replaced or removed before it was read.
#[derive(Clone, Default)]
pub(super) struct BlocksMoved(Arc<AtomicBool>);

impl BlocksMoved {
    /// Returns `true` if it was set.
    pub(super) fn happened(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Builds the body from these segments. It ends with an error unless the container is still the one for which the
/// blocks were staged: the store has looked up the container before reading the body, so it can't write to another
/// one.
pub(super) fn of(
    store: &Arc<dyn BlobStore>,
    owner: StagingOwner,
    segments: Vec<BlockSegment>,
    current: Option<Box<dyn Source>>,
    moved: &BlocksMoved,
) -> Upload {
    let segments = segments.into_iter();
    let reader = BlockReader {
        store: Arc::clone(store),
        owner,
        segments,
        current,
        body: None,
        moved: moved.clone(),
    };
    Upload::new(StreamBody::new(stream::try_unfold(
        reader,
        BlockReader::next,
    )))
}

/// The state of reading the segments one after another.
struct BlockReader {
    store: Arc<dyn BlobStore>,
    owner: StagingOwner,
    segments: std::vec::IntoIter<BlockSegment>,
    current: Option<Box<dyn Source>>,
    body: Option<BlobBody>,
    moved: BlocksMoved,
}

impl BlockReader {
    /// Reads the next frame.
    async fn next(mut self) -> Result<Option<(Frame<Bytes>, Self)>, BoxError> {
        loop {
            if let Some(body) = &mut self.body {
                match body.frame().await {
                    Some(frame) => return Ok(Some((frame?, self))),
                    None => self.body = None,
                }
            }
            match self.segments.next() {
                Some(segment) => self.body = Some(self.open(segment).await?),
                None if self.owner.is_there(&*self.store).await? => return Ok(None),
                None => return Err(self.moved("the container was replaced or removed")),
            }
        }
    }

    /// Opens a segment, unless it has changed.
    async fn open(&mut self, segment: BlockSegment) -> Result<BlobBody, BoxError> {
        match (segment, &mut self.current) {
            (BlockSegment::Current(range), Some(source)) => Ok(source.read(Some(range)).await?),
            (BlockSegment::Current(_), None) => Err("the current blob was not opened".into()),
            (BlockSegment::Staged(block), _) => {
                let opened = self
                    .store
                    .open(&block.path, Reading::WHOLE.without_lease())
                    .await?;
                if let Some(mut opened) = opened.filter(|opened| opened.info.tag == block.tag) {
                    return Ok(opened.source.read(None).await?);
                }
                Err(self.moved("a staged block was replaced or removed"))
            }
        }
    }

    /// Notes the change, and returns the error that ends the body.
    fn moved(&self, what: &str) -> BoxError {
        self.moved.0.store(true, Ordering::Release);
        what.into()
    }
}
