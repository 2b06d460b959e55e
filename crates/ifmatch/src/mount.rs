//! The URI of a request as the client sent it. A router that is mounted below a prefix sees only the rest of the path.

pub(crate) use imp::{map, replace, uri};

/// With axum, which strips the prefixes of nested routers, and keeps the original URI among the extensions.
#[cfg(feature = "axum")]
mod imp {
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
}

/// Without a router that strips prefixes.
#[cfg(not(feature = "axum"))]
mod imp {
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
}
