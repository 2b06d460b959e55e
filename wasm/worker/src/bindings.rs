//! What wrangler.toml binds to the Worker: the bucket of the blobs, and the objects of the records.

use worker::{Bucket, Env, Error, ObjectNamespace, Result};

/// The R2 bucket.
const BUCKET: &str = "BUCKET";
/// The Durable Objects.
const RECORDS: &str = "RECORDS";

/// The bucket that the blobs are in.
///
/// # Errors
/// Says what to write into wrangler.toml.
pub(crate) fn bucket(env: &Env) -> Result<Bucket> {
    env.bucket(BUCKET).map_err(|error| {
        let how = "[[r2_buckets]] with binding = \"BUCKET\" and the bucket_name of yours";
        missing(BUCKET, "an R2 bucket", how, &error)
    })
}

/// The objects that the records are in.
///
/// # Errors
/// Says what to write into wrangler.toml.
pub(crate) fn records(env: &Env) -> Result<ObjectNamespace> {
    env.durable_object(RECORDS).map_err(|error| {
        let how = "[[durable_objects.bindings]] with name = \"RECORDS\" and class_name = \"Records\"";
        missing(RECORDS, "a Durable Object namespace", how, &error)
    })
}

fn missing(name: &str, what: &str, how: &str, error: &Error) -> Error {
    Error::BindingError(format!("the binding {name} is not {what}: wrangler.toml needs {how} ({error})"))
}

/// A variable or a secret, if it is set and a text.
pub(crate) fn variable(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|value| value.to_string())
}
