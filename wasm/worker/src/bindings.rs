//! The binding of the records.

use worker::{Env, Error, ObjectNamespace, Result};

/// Name of the Durable Object namespace.
const RECORDS: &str = "RECORDS";

/// Returns the Durable Object namespace of the records.
///
/// # Errors
/// The error says what wrangler.toml needs.
pub(crate) fn records(env: &Env) -> Result<ObjectNamespace> {
    env.durable_object(RECORDS).map_err(|error| {
        let how = "[[durable_objects.bindings]] with name = \"RECORDS\" and class_name = \"Records\"";
        missing(RECORDS, "a Durable Object namespace", how, &error)
    })
}

/// Error for a binding that is missing or of another kind.
pub(crate) fn missing(name: &str, what: &str, how: &str, error: &Error) -> Error {
    Error::RustError(format!("the binding {name} is not {what}: wrangler.toml needs {how} ({error})"))
}
