//! The binding of the bucket.

use worker::{Bucket, Env, Result};

use crate::bindings::missing;

/// Name of the R2 bucket.
const BUCKET: &str = "BUCKET";

/// Returns the R2 bucket of the blobs.
///
/// # Errors
/// The error says what wrangler.toml needs.
pub(super) fn bucket(env: &Env) -> Result<Bucket> {
    env.bucket(BUCKET).map_err(|error| {
        let how = "[[r2_buckets]] with binding = \"BUCKET\" and the bucket_name of yours";
        missing(BUCKET, "an R2 bucket", how, &error)
    })
}
