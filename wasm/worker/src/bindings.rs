//! What wrangler.toml binds to the Worker for the records.

use worker::{Env, Error, ObjectNamespace, Result};

/// The Durable Objects.
const RECORDS: &str = "RECORDS";

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

/// The error of a binding that is not there, or something else.
pub(crate) fn missing(name: &str, what: &str, how: &str, error: &Error) -> Error {
    Error::RustError(format!("the binding {name} is not {what}: wrangler.toml needs {how} ({error})"))
}
