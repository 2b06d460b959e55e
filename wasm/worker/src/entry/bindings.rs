//! What wrangler.toml binds for the service: the bucket of the blobs, and variables.

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

/// A variable or a secret, if it is set and a text.
pub(super) fn variable(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|value| value.to_string())
}
