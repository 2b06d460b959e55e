//! The operations that need no signature where everyone may read.

use s3s::access::{S3Access, S3AccessContext};
use s3s::{S3Result, s3_error};

use crate::authorization::{parameters, unsigned};

/// Marks a request without a signature, at a time when everyone may read.
#[derive(Clone, Copy)]
pub(crate) struct Anonymous;

/// Admits signed requests, and those that are [`Anonymous`] and read.
pub(crate) struct SignedOrReading;

#[async_trait::async_trait]
impl S3Access for SignedOrReading {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        if request.credentials().is_some() {
            return Ok(());
        }
        let operation = request.s3_op().name();
        let reads = matches!(operation, "GetObject" | "HeadObject" | "ListObjects" | "ListObjectsV2" | "HeadBucket");
        if !reads || request.extensions_mut().get::<Anonymous>().is_none() {
            return Err(unsigned());
        }
        // Otherwise, the author of a link could turn an object into a web page.
        let query = parameters(request.uri().query().unwrap_or_default());
        if query.iter().any(|(name, _)| name.starts_with("response-")) {
            return Err(s3_error!(InvalidRequest, "only a signed request may choose header fields of the response"));
        }
        Ok(())
    }
}
