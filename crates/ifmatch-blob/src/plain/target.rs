//! The target that the path of a request names.

use http::StatusCode;
use ifmatch_core::problem::Problem;

use crate::name::{BlobPath, ContainerName, InvalidName, NameErrorKind};

/// The target that the path of a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// All containers: `/`, and `*` or an empty path in requests about the server.
    Root,
    /// `/{container}`, with or without a trailing slash.
    Container(ContainerName),
    /// `/{container}/{blob…}`
    Blob(BlobPath),
}

impl Target {
    /// Parses a raw path.
    pub(super) fn parse(path: &str) -> Result<Self, Problem> {
        let inner = path.strip_prefix('/').unwrap_or(path);
        // A container's name is short, so this is faster than a search optimised for long texts.
        let cut = inner.bytes().position(|byte| byte == b'/');
        match cut.map(|at| (&inner[..at], &inner[at + 1..])) {
            None if matches!(inner, "" | "*") => Ok(Self::Root),
            None => ContainerName::new(inner).map(Self::Container).map_err(invalid),
            Some((container, "")) => ContainerName::new(container).map(Self::Container).map_err(invalid),
            Some((container, name)) => BlobPath::of_encoded(container, name).map(Self::Blob).map_err(invalid),
        }
    }
}

fn invalid(error: InvalidName) -> Problem {
    let status = match error.kind() {
        NameErrorKind::BlobTooLong | NameErrorKind::ContainerTooLong => StatusCode::URI_TOO_LONG,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::new(status, "invalid-name").detail(error.to_string())
}
