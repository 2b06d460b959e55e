//! Traces of a build without OpenTelemetry: there are none.

use http::{HeaderMap, Request};
use ifmatch_gateway_config::error::Error;
use url::Url;

use super::SpanAttributes;

/// Never created.
#[derive(Debug)]
pub enum Traces {}

/// Never created.
#[derive(Debug)]
pub(crate) struct RequestSpan(Traces);

impl Traces {
    pub(crate) fn start(_: &Url) -> Result<Self, Error> {
        Err(Error::usage(
            "this build can't send traces. Add `--features otlp` to the cargo command that built it, or set OTEL_SDK_DISABLED=true",
        ))
    }

    pub(crate) fn begin<B>(&self, _: &Request<B>) -> RequestSpan {
        match *self {}
    }

    /// Returns at once.
    #[expect(clippy::unused_async, reason = "as with OpenTelemetry")]
    pub async fn stop(&self) {
        match *self {}
    }
}

impl RequestSpan {
    pub(crate) fn is_recording(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn put_into(&self, _: &mut HeaderMap) {
        match self.0 {}
    }

    pub(crate) fn end(self, _: SpanAttributes<'_>) {
        match self.0 {}
    }
}
