//! What wrangler.toml binds for the service: the bucket of the blobs.

use worker::{Bucket, Env, Result};

use crate::bindings::missing;

/// The R2 bucket.
const BUCKET: &str = "BUCKET";

/// The bucket that the blobs are in.
///
/// # Errors
/// Says what to write into wrangler.toml.
pub(super) fn bucket(env: &Env) -> Result<Bucket> {
    env.bucket(BUCKET).map_err(|error| {
        let how = "[[r2_buckets]] with binding = \"BUCKET\" and the bucket_name of yours";
        missing(BUCKET, "an R2 bucket", how, &error)
    })
}
