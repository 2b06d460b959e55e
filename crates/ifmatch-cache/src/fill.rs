//! Moving a body from the origin to those who wait for it, and into the store once it is complete.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use ifmatch_runtime::Clock;

use crate::blocks::Blocks;
use crate::body::{BodyError, as_bytes};
use crate::broadcast::{Broadcast, Broken};
use crate::budget::Reserved;
use crate::content::{Content, Part};
use crate::file::Spool;
use crate::flight::Pilot;
use crate::key::Key;
use crate::policy::content_range::ContentRange;
use crate::shared::Shared;
use crate::stored::{self, Meta, Stored};

/// How long the origin may pause while nobody reads, before the rest is given up.
const IDLE: Duration = Duration::from_secs(10);

/// A response whose head has come.
pub(crate) struct Fill<C> {
    pub(crate) shared: Arc<Shared<C>>,
    pub(crate) key: Key,
    pub(crate) meta: Arc<Meta>,
    pub(crate) broadcast: Arc<Broadcast>,
    /// Which part the body is, if it is not the whole.
    pub(crate) range: Option<ContentRange>,
    pub(crate) pilot: Option<Pilot>,
    /// The file that the body goes to once it is too long for the memory.
    pub(crate) spool: Option<Spool>,
}

impl<C: Clock> Fill<C> {
    /// Reads the body to its end.
    pub(crate) async fn run<T>(mut self, body: T)
    where
        T: Body<Error: Into<BodyError>>,
    {
        let mut body = pin!(body);
        let (mut len, mut kept, mut stored) = (0_u64, true, None);
        let mut trailers = None;
        loop {
            let frame = match self.frame(body.as_mut()).await {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(why) => return self.broadcast.fail(why),
            };
            match frame.into_data() {
                Ok(chunk) => {
                    len += chunk.len() as u64;
                    // The one who gets the last bytes may ask again at once, and then finds the response stored.
                    if kept && body.is_end_stream() && self.is_sound(len) && self.broadcast.covers(len) {
                        stored = Some(self.store(Some(&chunk), len, None));
                    }
                    self.spool(&chunk).await;
                    if body.is_end_stream()
                        && self.is_sound(len)
                        && let Some(spool) = self.spool.take()
                    {
                        self.keep(spool, None).await;
                    }
                    kept &= self.deliver(chunk).await;
                    if stored.is_none() {
                        self.keep_pace().await;
                    }
                    let is_kept = kept || self.spool.is_some() || body.is_end_stream();
                    if !is_kept && !self.broadcast.has_readers() {
                        return;
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        if !self.is_sound(len) {
            return self.broadcast.fail(broken("the body is not as long as was promised"));
        }
        if kept && stored.is_none() {
            stored = Some(self.store(None, len, trailers.clone()));
        }
        if let Some(spool) = self.spool.take() {
            self.keep(spool, trailers.clone()).await;
        }
        self.broadcast.complete(trailers, stored.flatten().as_ref());
    }

    /// The next frame.
    async fn frame<T>(&self, mut body: Pin<&mut T>) -> Result<Option<Frame<Bytes>>, Broken>
    where
        T: Body<Error: Into<BodyError>>,
    {
        loop {
            let next = poll_fn(|cx| body.as_mut().poll_frame(cx));
            match self.shared.within(IDLE, next).await {
                Some(frame) => return as_bytes(frame).transpose().map_err(Broken::from),
                None if self.broadcast.has_readers() => {}
                None => return Err(broken("nobody reads the body, and the origin pauses")),
            }
        }
    }

    /// Passes bytes on. Returns false if they are too many to be kept in memory.
    async fn deliver(&mut self, chunk: Bytes) -> bool {
        let fits = self.broadcast.push(chunk);
        if !fits {
            self.overflow().await;
        }
        fits
    }

    /// Waits for readers, where the body may be too long to be kept.
    async fn keep_pace(&self) {
        while self
            .shared
            .within(self.shared.config.patience, poll_fn(|cx| self.broadcast.poll_room(cx)))
            .await
            .is_none()
        {
            self.broadcast.lose_slowest();
        }
    }

    /// Begins a file with the bytes that have come, if there is a folder for it.
    async fn overflow(&mut self) {
        let folder = self.shared.config.disk.as_ref().filter(|_| self.range.is_none());
        let Some(folder) = folder else { return self.pass_on() };
        match Spool::begin(folder, self.broadcast.chunks()).await {
            Ok((spool, body, open)) => {
                self.spool = Some(spool);
                self.broadcast.keep_in(body, open);
            }
            Err(_) => self.pass_on(),
        }
    }

    /// Keeps nothing of the body from now on. Later requests go to the origin.
    fn pass_on(&mut self) {
        (self.pilot, self.spool) = (None, None);
        self.broadcast.keep_nowhere();
    }

    /// Adds to the file, if there is one. What cannot be written is not kept.
    async fn spool(&mut self, chunk: &Bytes) {
        if let Some(spool) = &mut self.spool
            && spool.write(chunk).await.is_err()
        {
            self.pass_on();
        }
    }

    /// Stores the response with its body in a file.
    async fn keep(&self, spool: Spool, trailers: Option<HeaderMap>) {
        let Ok(file) = spool.finish(trailers).await else { return };
        let new = Stored { meta: Arc::clone(&self.meta), body: stored::Body::File(file) };
        if self.shared.table.store(&self.key, new, |_, new| new) {
            self.shared.counters.stored.add(1);
        }
    }

    /// Whether the body is as long as was promised.
    fn is_sound(&self, len: u64) -> bool {
        let promised = self.broadcast.declared.or(self.range.map(|range| range.bytes.len()));
        promised.is_none_or(|promised| promised == len)
    }

    /// Stores the response, and returns its content if it was stored.
    fn store(&self, last: Option<&Bytes>, len: u64, trailers: Option<HeaderMap>) -> Option<Content> {
        let limit = self.shared.config.entry_limit;
        if len > limit {
            return None;
        }
        let mut chunks = self.broadcast.chunks();
        chunks.extend(last.cloned());
        let content = Content::compact(&chunks, trailers);
        let body = match self.range {
            None => stored::Body::Whole(Arc::new(content.clone())),
            Some(range) => part(Part::new(range, content.clone(), limit)),
        };
        let new = Stored { meta: Arc::clone(&self.meta), body };
        let stored = self.shared.table.store(&self.key, new, merged);
        self.shared.counters.stored.add(stored.into());
        stored.then_some(content)
    }
}

/// Whatever happens, nobody waits for a body that does not come.
impl<C> Drop for Fill<C> {
    fn drop(&mut self) {
        self.broadcast.abandon();
    }
}

/// A new response together with the stored one in whose place it comes: parts of the same representation are joined
/// (RFC 9111 §3.4).
fn merged(old: &Stored, new: Stored) -> Stored {
    let same = new.meta.strong_tag().is_some() && new.meta.tag == old.meta.tag;
    let body = match (&old.body, &new.body) {
        (stored::Body::Part(old), stored::Body::Part(new)) if same => old.join(new).map(part),
        (stored::Body::Whole(whole), stored::Body::Part(new)) if same && whole.len == new.total => {
            Some(old.body.clone())
        }
        (stored::Body::File(file), stored::Body::Part(new)) if same && file.len() == new.total && file.is_there() => {
            Some(old.body.clone())
        }
        _ => None,
    };
    Stored { body: body.unwrap_or(new.body), meta: new.meta }
}

fn part(part: Part) -> stored::Body {
    part.whole().map_or_else(|| stored::Body::Part(Arc::new(part)), stored::Body::Whole)
}

/// Reads a body of a known length. None: it has another one, fails, or there is no memory for it.
pub(crate) async fn collect<T>(body: T, mut reserved: Reserved, len: u64) -> Option<Content>
where
    T: Body<Error: Into<BodyError>>,
{
    let mut body = pin!(body);
    let mut blocks = Blocks::default();
    while let Some(frame) = as_bytes(body.frame().await) {
        if let Ok(chunk) = frame.ok()?.into_data() {
            let come = blocks.end() + chunk.len() as u64;
            if come > len || !reserved.cover(come) {
                return None;
            }
            blocks.push(chunk);
        }
    }
    (blocks.end() == len).then(|| Content::compact(&blocks.all(), None))
}

fn broken(why: &'static str) -> Broken {
    let error: Box<dyn Error + Send + Sync> = why.into();
    error.into()
}
