//! The kind of credentials that a request carries, for the log and the metrics. Never the credentials themselves.

use http::Request;
use http::header::AUTHORIZATION;
use ifmatch_azure::auth::shared_access;

/// All kinds.
pub(crate) const KINDS: [&str; 5] = ["none", "token", "shared-key", "shared-access", "other"];

/// Returns the index of the kind of credentials in [`KINDS`]. `Authorization` takes precedence over a signature in the query.
pub(crate) fn kind_of<B>(request: &Request<B>) -> usize {
    let Some(line) = request.headers().get(AUTHORIZATION) else {
        return if shared_access::is_in(request.uri().query()) { 3 } else { 0 };
    };
    let scheme = line.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default().to_ascii_lowercase();
    match &*scheme {
        b"bearer" => 1,
        b"sharedkey" | b"sharedkeylite" => 2,
        _ => 4,
    }
}
