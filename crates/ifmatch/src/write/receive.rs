//! Receiving the request's body before the permit, so a slow client keeps no other writer waiting.

use std::pin::pin;

use futures_util::future::{Either, select};
use http::StatusCode;
use ifmatch_core::problem::Problem;

use super::request::WriteContext;
use crate::body::{BufferedBody, PartlyReadBody, ReadEnd, ReceivedBody};
use crate::inner::RequestContent;

impl WriteContext {
    /// Receives a body up to the limit. A longer one arrives while the handler runs: one with a known length in full, so
    /// that a client that waits for `100 Continue` learns a refusal before it sends anything.
    ///
    /// # Errors
    /// 408 if nothing arrives for as long as a write may take. 400 if the body breaks off, and that is refused.
    pub(crate) async fn receive<B: RequestContent>(
        &self,
        body: B,
    ) -> Result<ReceivedBody<B>, Problem> {
        let limit = self.shared.config.request_buffer_limit;
        if body.is_end_stream() {
            return Ok(ReceivedBody::whole(BufferedBody::default()));
        }
        if body.size_hint().lower() > limit {
            return Ok(ReceivedBody::arriving(body));
        }
        let mut reader = PartlyReadBody::new(body, limit);
        loop {
            let end = {
                let stalled = self
                    .shared
                    .driver
                    .clock()
                    .sleep(self.shared.config.write_timeout);
                match select(pin!(reader.read_frame()), pin!(stalled)).await {
                    Either::Left((end, _)) => end,
                    Either::Right(_) => return Err(stalled_body()),
                }
            };
            match end {
                None => {}
                Some(ReadEnd::Complete(trailers)) => {
                    return Ok(ReceivedBody::whole(BufferedBody {
                        chunks: reader.chunks,
                        trailers,
                    }));
                }
                Some(ReadEnd::Limit) => return Ok(ReceivedBody::partial(reader, None)),
                Some(ReadEnd::Error(_)) if self.shared.config.refuses_broken_bodies => {
                    return Err(broken_body());
                }
                // The handler decides what an incomplete body means.
                Some(ReadEnd::Error(error)) => {
                    return Ok(ReceivedBody::partial(reader, Some(error)));
                }
            }
        }
    }
}

fn broken_body() -> Problem {
    let detail = "the request's body broke off: nothing was changed, send the request again";
    Problem::new(StatusCode::BAD_REQUEST, "content-incomplete").detail(detail)
}

fn stalled_body() -> Problem {
    let detail = "the request's body stopped arriving: nothing was changed, send the request again";
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body-stalled").detail(detail)
}
