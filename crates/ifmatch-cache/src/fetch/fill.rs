//! Moving a body from the origin to its readers, and into the store once it is complete.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use ifmatch_runtime::task::timeout;

use crate::body::broadcast::{BodyBroadcast, BrokenBody};
use crate::body::budget::ByteReservation;
use crate::body::chunk_buffer::ChunkBuffer;
use crate::body::folder::ReservedSpace;
use crate::body::in_memory::{MemoryBody, PartialBody};
use crate::body::on_disk::DiskWriter;
use crate::body::parts::BodyParts;
use crate::fetch::single_flight::FlightLeader;
use crate::metrics::NotStored;
use crate::policy::content_range::ContentRange;
use crate::request::key::CacheKey;
use crate::respond::response_body::{BodyError, as_bytes};
use crate::state::CacheState;
use crate::store::stored_response::{StoredBody, StoredHead, StoredResponse};

/// Maximum pause of the origin in a body without readers, before the cache abandons the body.
const IDLE: Duration = Duration::from_secs(10);

/// A response with an incomplete body.
pub(crate) struct BodyFill {
    pub(crate) state: Arc<CacheState>,
    pub(crate) key: CacheKey,
    pub(crate) meta: Arc<StoredHead>,
    pub(crate) broadcast: Arc<BodyBroadcast>,
    /// Range of the body, if it is a part.
    pub(crate) range: Option<ContentRange>,
    pub(crate) leader: Option<FlightLeader>,
    /// Set once the body is too long for the memory.
    pub(crate) disk_writer: Option<DiskWriter>,
    /// Space on disk for the declared length, if it is too long for the memory.
    pub(crate) space: Option<ReservedSpace>,
    /// The reason why the response isn't stored if the fill ends now. `None` once it is stored.
    pub(crate) lost: Option<NotStored>,
}

impl BodyFill {
    /// Reads the body to its end.
    pub(crate) async fn run<T>(mut self, body: T)
    where
        T: Body<Error: Into<BodyError>>,
    {
        let mut body = pin!(body);
        let (mut len, mut in_memory, mut stored) = (0_u64, true, None);
        let mut trailers = None;
        loop {
            let frame = match self.frame(body.as_mut()).await {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => return self.broadcast.fail(error),
            };
            match frame.into_data() {
                Ok(chunk) => {
                    len += chunk.len() as u64;
                    let is_complete = body.is_end_stream() && self.is_length_valid(len);
                    // Stored before the last bytes are sent, so a client that has them finds the response stored.
                    if in_memory && is_complete && self.broadcast.covers(len) {
                        stored = Some(self.store(Some(&chunk), len, None));
                    }
                    self.write_to_disk(&chunk).await;
                    if is_complete && let Some(writer) = self.disk_writer.take() {
                        self.store_on_disk(writer, None).await;
                    }
                    in_memory &= self.send(chunk).await;
                    if stored.is_none() {
                        self.wait_for_readers().await;
                    }
                    let is_kept = in_memory || self.disk_writer.is_some() || body.is_end_stream();
                    if !is_kept && !self.broadcast.has_readers() {
                        return;
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        if !self.is_length_valid(len) {
            return self.broadcast.fail(broken(
                "the length of the body differs from the declared one",
            ));
        }
        if in_memory && stored.is_none() {
            stored = Some(self.store(None, len, trailers.clone()));
        }
        if let Some(writer) = self.disk_writer.take() {
            self.store_on_disk(writer, trailers.clone()).await;
        }
        self.broadcast.complete(trailers, stored.flatten().as_ref());
    }

    /// Reads the next frame.
    async fn frame<T>(&self, mut body: Pin<&mut T>) -> Result<Option<Frame<Bytes>>, BrokenBody>
    where
        T: Body<Error: Into<BodyError>>,
    {
        loop {
            let next = poll_fn(|cx| body.as_mut().poll_frame(cx));
            match timeout(&*self.state.clock, IDLE, next).await {
                Ok(frame) => return as_bytes(frame).transpose().map_err(BrokenBody::from),
                Err(_) if self.broadcast.has_readers() => {}
                Err(_) => return Err(broken("the origin paused while the body had no readers")),
            }
        }
    }

    /// Sends bytes to the readers. Returns `false` if the body is too long for the memory.
    async fn send(&mut self, chunk: Bytes) -> bool {
        let fits = self.broadcast.push(chunk);
        if !fits {
            self.overflow().await;
        }
        fits
    }

    /// Waits until the readers leave room for more, where the body may be too long to be kept.
    async fn wait_for_readers(&self) {
        let patience = self.state.config.patience;
        while timeout(
            &*self.state.clock,
            patience,
            poll_fn(|cx| self.broadcast.poll_room(cx)),
        )
        .await
        .is_err()
        {
            self.broadcast.drop_slowest();
        }
    }

    /// Moves the body to disk, if the cache has a folder.
    async fn overflow(&mut self) {
        let Some(folder) = &self.state.config.disk else {
            return self.stop_storing(NotStored::TooLarge);
        };
        match DiskWriter::begin(folder, self.space.take(), self.broadcast.chunks()).await {
            Ok((writer, body, file)) => {
                self.disk_writer = Some(writer);
                self.broadcast.move_to_disk(body, file);
            }
            Err(_) => self.stop_storing(NotStored::Disk),
        }
    }

    /// Passes the rest of the body on without storing it. Later requests go to the origin.
    fn stop_storing(&mut self, why: NotStored) {
        self.lost = Some(why);
        (self.leader, self.disk_writer) = (None, None);
        self.broadcast.stop_storing();
    }

    /// Adds bytes to the file, if there is one. Stops storing if that fails.
    async fn write_to_disk(&mut self, chunk: &Bytes) {
        if let Some(writer) = &mut self.disk_writer
            && writer.write(chunk).await.is_err()
        {
            self.stop_storing(NotStored::Disk);
        }
    }

    /// Stores the response with its body on disk.
    async fn store_on_disk(&mut self, writer: DiskWriter, trailers: Option<HeaderMap>) {
        let Ok(file) = writer.finish(trailers).await else {
            self.lost = Some(NotStored::Disk);
            return;
        };
        let body = match self.range {
            Some(range) if range.bytes.len() < range.total => {
                StoredBody::Parts(Arc::new(BodyParts::on_disk(range, file)))
            }
            Some(_) | None => StoredBody::File(file),
        };
        let new = StoredResponse {
            meta: Arc::clone(&self.meta),
            body,
        };
        let stored = self.state.table.store(&self.key, new, merge);
        self.note_stored(stored);
    }

    /// Records the end of an attempt to store the response. It fails if the response was invalidated.
    fn note_stored(&mut self, stored: bool) {
        self.lost = (!stored).then_some(NotStored::Invalidated);
        self.state.counters.stored.add(stored.into());
    }

    /// Returns `true` if the body has the declared length.
    fn is_length_valid(&self, len: u64) -> bool {
        let declared = self
            .broadcast
            .declared
            .or(self.range.map(|range| range.bytes.len()));
        declared.is_none_or(|declared| declared == len)
    }

    /// Stores the response in memory, and returns its body if it was stored.
    fn store(
        &mut self,
        last: Option<&Bytes>,
        len: u64,
        trailers: Option<HeaderMap>,
    ) -> Option<Arc<MemoryBody>> {
        let limit = self.state.config.entry_limit;
        if len > limit {
            self.lost = Some(NotStored::TooLarge);
            return None;
        }
        let mut chunks = self.broadcast.chunks();
        chunks.extend(last.cloned());
        let content =
            Arc::new(MemoryBody::compact(&chunks, trailers).held_within(&self.state.held));
        let body = match self.range {
            None => StoredBody::Whole(Arc::clone(&content)),
            Some(range) => {
                let part = PartialBody::new(range, MemoryBody::clone(&content), limit);
                whole_or_parts(BodyParts::in_memory(part))
            }
        };
        let new = StoredResponse {
            meta: Arc::clone(&self.meta),
            body,
        };
        let stored = self.state.table.store(&self.key, new, merge);
        self.note_stored(stored);
        stored.then_some(content)
    }
}

/// Releases the readers if the fill ends early.
impl Drop for BodyFill {
    fn drop(&mut self) {
        if let Some(reason) = self.lost {
            self.state.counters.not_stored(reason);
        }
        self.broadcast.abandon();
    }
}

/// Joins a new part with the stored parts of the same representation (RFC 9111 §3.4). Otherwise the new response
/// replaces the old one.
fn merge(old: &StoredResponse, new: StoredResponse) -> StoredResponse {
    let same = new.meta.strong_tag().is_some() && new.meta.tag == old.meta.tag;
    let is_kept = |len: u64, parts: &BodyParts| same && len == parts.total;
    let body = match (&old.body, &new.body) {
        (StoredBody::Parts(old), StoredBody::Parts(new)) if same => {
            old.join(new).map(whole_or_parts)
        }
        (StoredBody::Whole(whole), StoredBody::Parts(new)) if is_kept(whole.len, new) => {
            Some(old.body.clone())
        }
        (StoredBody::File(file), StoredBody::Parts(new))
            if is_kept(file.len(), new) && file.is_there() =>
        {
            Some(old.body.clone())
        }
        _ => None,
    };
    StoredResponse {
        body: body.unwrap_or(new.body),
        meta: new.meta,
    }
}

fn whole_or_parts(parts: BodyParts) -> StoredBody {
    parts
        .whole()
        .map_or_else(|| StoredBody::Parts(Arc::new(parts)), StoredBody::Whole)
}

/// Reads a body of a known length into memory. Returns `None` if its length differs, it fails, or memory is short.
pub(crate) async fn collect<T>(
    body: T,
    mut reservation: ByteReservation,
    len: u64,
) -> Option<MemoryBody>
where
    T: Body<Error: Into<BodyError>>,
{
    let mut body = pin!(body);
    let mut buffer = ChunkBuffer::default();
    while let Some(frame) = as_bytes(body.frame().await) {
        if let Ok(chunk) = frame.ok()?.into_data() {
            let end = buffer.end() + chunk.len() as u64;
            if end > len || !reservation.cover(end) {
                return None;
            }
            buffer.push(chunk);
        }
    }
    (buffer.end() == len).then(|| MemoryBody::compact(&buffer.all(), None))
}

fn broken(why: &'static str) -> BrokenBody {
    let error: Box<dyn Error + Send + Sync> = why.into();
    error.into()
}
