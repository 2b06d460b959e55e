//! The error type of response bodies.

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
