//! HTTP/1 by hyper, with interim responses.

pub(crate) use interim_stream::InterimStream;

mod interim_stream;

use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioTimer;

use crate::limits::{Limits, MAX_FIELDS};

/// Maximum number of bytes of a response that wait for a slow client, in addition to the last chunk.
const BUFFER: usize = 64 * 1024;

/// Returns the settings for connections within `limits`. The watchdog enforces the timeouts: hyper's own timeouts cost
/// a timer per request.
pub(crate) fn builder(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).max_header_size(limits.header_size);
    builder.max_headers(MAX_FIELDS);
    builder.max_buf_size(limits.header_size.max(BUFFER));
    // A client may shut down its side after the request, and still read the response.
    builder.half_close(true);
    builder
}
