//! The body of a request on its way to `s3s`.
//!
//! Left alone, `s3s` reads a document to its end without comparing its checksums, and answers 500 if it breaks off; and it keeps each
//! chunk of an `aws-chunked` body in memory, however long. It reads no byte before it has verified the signature of the head, and
//! selected the operation. So the body that it reads from is this one: it knows the operation once that is
//! [checked](crate::authorization), reads a document [whole](ExpectedDigests::read) first, and [limits chunks](crate::bodies::chunks).
//!
//! `s3s` hides an error of the body in one of its own. The reason is kept here, for the [answer](crate::service).

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use ifmatch_blob::documents::in_place_of;
use ifmatch_blob::store::BoxError;
use s3s::{S3Error, S3Result};

use super::chunks;
use super::document::ExpectedDigests;
use super::memory::ClientMemory;
use super::upload_body::BodyRefusal;
use crate::error;

/// A request's body, as far as it is known. Clones share it.
#[derive(Clone)]
pub(crate) struct IncomingBody(Arc<IncomingState>);

/// The state that the clones of an [`IncomingBody`] share.
struct IncomingState {
    memory: ClientMemory,
    document: OnceLock<ExpectedDigests>,
    /// The document, whose memory is taken until the end of the request.
    held: OnceLock<Bytes>,
    refused: OnceLock<BodyRefusal>,
}

impl IncomingBody {
    pub(crate) fn new(memory: ClientMemory) -> Self {
        let (document, held, refused) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self(Arc::new(IncomingState {
            memory,
            document,
            held,
            refused,
        }))
    }

    /// States that the body is a document, before anything of it is read.
    pub(crate) fn expect_document(&self, expected: ExpectedDigests) {
        // Once for a request.
        drop(self.0.document.set(expected));
    }

    /// Returns the reason why the body was refused, if it was.
    pub(crate) fn refused(&self) -> Option<S3Error> {
        self.0.refused.get().map(BodyRefusal::to_error)
    }

    /// Returns the document, if the body is one and was read.
    pub(crate) fn document(&self) -> Option<&Bytes> {
        self.0.held.get()
    }

    /// Counts the document of a response until it is sent.
    pub(crate) fn counted(&self, response: Response<s3s::Body>) -> S3Result<Response<s3s::Body>> {
        let Some(answer) = response.body().bytes() else {
            return Ok(response);
        };
        let ClientMemory { documents, client } = &self.0.memory;
        let mut memory = documents.begin(*client);
        memory.grow(answer.len()).map_err(error::crowded)?;
        Ok(response.map(|_| s3s::Body::from(memory.hold(answer))))
    }

    /// Keeps the memory of the request's document until the response is sent, which is about as long: it can't be refused any more.
    pub(crate) fn in_place(&self, response: Response<s3s::Body>) -> Response<s3s::Body> {
        match (response.body().bytes(), self.document().cloned()) {
            (Some(answer), Some(document)) => {
                response.map(|_| s3s::Body::from(in_place_of(document, answer)))
            }
            _ => response,
        }
    }

    /// Returns the body to be read by `s3s`.
    pub(crate) fn body(&self, head: &Parts, body: s3s::Body) -> s3s::Body {
        let content = BodyContent::Unread(chunks::limited(&head.headers, &self.0.memory, body));
        s3s::Body::http_body_unsync(BodyReader {
            incoming: self.clone(),
            content,
        })
    }

    /// Keeps the reason, and returns it as the error of the body.
    fn refuse(&self, refused: BodyRefusal) -> BoxError {
        drop(self.0.refused.set(refused.clone()));
        refused.into()
    }
}

/// The body that `s3s` reads.
struct BodyReader {
    incoming: IncomingBody,
    content: BodyContent,
}

/// The state of reading a body.
enum BodyContent {
    /// What is left of a body that is passed on as it arrives.
    Unread(s3s::Body),
    /// The reading of a document.
    Document(Pin<Box<dyn Future<Output = Result<Bytes, BodyRefusal>> + Send>>),
    End,
}

impl Body for BodyReader {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            let outcome = match &mut this.content {
                BodyContent::End => return Poll::Ready(None),
                BodyContent::Unread(body) => match this.incoming.0.document.get() {
                    Some(expected) => {
                        let reading = expected
                            .clone()
                            .read(this.incoming.0.memory.clone(), std::mem::take(body));
                        this.content = BodyContent::Document(Box::pin(reading));
                        continue;
                    }
                    None => match ready!(Pin::new(body).poll_frame(context)) {
                        Some(Err(error)) => match error.downcast::<BodyRefusal>() {
                            Ok(refused) => Err(*refused),
                            Err(error) => return Poll::Ready(Some(Err(error))),
                        },
                        frame => return Poll::Ready(frame),
                    },
                },
                BodyContent::Document(reading) => ready!(reading.as_mut().poll(context)),
            };
            this.content = BodyContent::End;
            return Poll::Ready(match outcome {
                Ok(document) if document.is_empty() => None,
                Ok(document) => {
                    drop(this.incoming.0.held.set(document.clone()));
                    Some(Ok(Frame::data(document)))
                }
                Err(refused) => Some(Err(this.incoming.refuse(refused))),
            });
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            BodyContent::Unread(body) => body.is_end_stream(),
            BodyContent::Document(_) => false,
            BodyContent::End => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Unread(body) => body.size_hint(),
            BodyContent::Document(_) => SizeHint::default(),
            BodyContent::End => SizeHint::with_exact(0),
        }
    }
}
