//! Without a router that strips prefixes.

use http::Uri;
use http::request::Parts;

/// Returns the URI that the client sent.
pub(crate) fn uri(head: &Parts) -> &Uri {
    &head.uri
}

/// Makes a head address another resource, by its URI as clients send it.
pub(crate) fn replace(head: &mut Parts, uri: Uri) {
    head.uri = uri;
}

/// Changes the URI. Returns `None` if it stays as it is.
pub(crate) fn map(head: &mut Parts, change: impl Fn(&Uri) -> Option<Uri>) -> Option<()> {
    head.uri = change(&head.uri)?;
    Some(())
}
