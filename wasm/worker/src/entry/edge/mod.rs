//! Conversions between the runtime's requests, responses and streams and those of the `http` crates.

pub(crate) mod body;
pub(crate) mod headers;
pub(crate) mod reader;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stream;
