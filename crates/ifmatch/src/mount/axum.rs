//! With axum, which strips the prefixes of nested routers, and keeps the original URI among the extensions.

use axum::extract::OriginalUri;
use http::Uri;
use http::request::Parts;

/// Returns the URI that the client sent.
pub(crate) fn uri(head: &Parts) -> &Uri {
    head.extensions.get::<OriginalUri>().map_or(&head.uri, |original| &original.0)
}

/// Makes a head address another resource, by its URI as clients send it.
pub(crate) fn replace(head: &mut Parts, uri: Uri) {
    head.extensions.remove::<OriginalUri>();
    head.uri = uri;
}

/// Changes the URI. Returns `None` if it stays as it is.
pub(crate) fn map(head: &mut Parts, change: impl Fn(&Uri) -> Option<Uri>) -> Option<()> {
    head.uri = change(&head.uri)?;
    if let Some(original) = head.extensions.get_mut::<OriginalUri>()
        && let Some(uri) = change(&original.0)
    {
        original.0 = uri;
    }
    Some(())
}
