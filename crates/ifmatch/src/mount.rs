//! Routers that are mounted below a prefix. axum strips the prefix from the URI of a request, and keeps the URI that the client
//! sent among the extensions.
//!
//! Within the layer, `head.uri` is always the one that the client sent: predicates, keys and observers must not depend on where the
//! router is mounted. Otherwise `guard_where(|head| head.uri.path().starts_with("/notes/"))` would guard nothing in a router
//! nested under `/notes`: of two writers with one tag, both would succeed. [`enter`] makes it so, and [`leave`] restores the URI
//! below the mount for the inner service. A URI that a middleware has rewritten is left as it is.

pub(crate) use imp::{enter, leave, map, replace, uri};

/// With axum.
#[cfg(feature = "axum")]
mod imp {
    use std::mem;

    use axum::extract::{NestedPath, OriginalUri};
    use http::request::Parts;
    use http::{Request, Uri};

    /// The URI below the mount, which the inner service gets.
    #[derive(Clone)]
    struct InnerUri(Uri);

    /// Gives a head the URI that the client sent.
    pub(crate) fn enter(head: &mut Parts) {
        let sent = uri(head);
        if *sent != head.uri {
            let sent = sent.clone();
            let below = mem::replace(&mut head.uri, sent);
            head.extensions.insert(InnerUri(below));
        }
    }

    /// Gives a request the URI below the mount again.
    pub(crate) fn leave<B>(request: &mut Request<B>) {
        if let Some(InnerUri(uri)) = request.extensions_mut().remove() {
            *request.uri_mut() = uri;
        }
    }

    /// Returns the URI that the client sent, of a head that may be outside the layer. A middleware that has rewritten the URI since has
    /// the last word: two names of one resource would have two keys.
    pub(crate) fn uri(head: &Parts) -> &Uri {
        let original = head.extensions.get().map(|OriginalUri(uri)| uri);
        let mount = head.extensions.get().map(NestedPath::as_str);
        original
            .zip(mount)
            .filter(|(original, mount)| is_below(&head.uri, original, mount))
            .map_or(&head.uri, |(uri, _)| uri)
    }

    /// Returns `true` if nesting at a mount, and nothing else, has made `uri` of the original one: it removes as many segments as
    /// the mount has. Of the mount itself, a slash is left. A middleware that strips a language removes a prefix, too.
    fn is_below(uri: &Uri, original: &Uri, mount: &str) -> bool {
        let segments = mount.trim_matches('/').split('/').count();
        let rest = original
            .path()
            .match_indices('/')
            .nth(segments)
            .map_or("/", |(at, _)| &original.path()[at..]);
        uri.query() == original.query() && uri.path() == rest
    }

    /// Makes a head address another resource, by its URI as clients send it.
    pub(crate) fn replace(head: &mut Parts, uri: Uri) {
        head.extensions.remove::<OriginalUri>();
        head.extensions.remove::<InnerUri>();
        head.uri = uri;
    }

    /// Changes the URI, also below the mount. Returns `None` if it stays as it is.
    pub(crate) fn map(head: &mut Parts, change: impl Fn(&Uri) -> Option<Uri>) -> Option<()> {
        head.uri = change(&head.uri)?;
        let original = head
            .extensions
            .get_mut::<OriginalUri>()
            .map(|OriginalUri(uri)| uri);
        change_if_there(original, &change);
        let below = head
            .extensions
            .get_mut::<InnerUri>()
            .map(|InnerUri(uri)| uri);
        change_if_there(below, &change);
        Some(())
    }

    fn change_if_there(uri: Option<&mut Uri>, change: impl Fn(&Uri) -> Option<Uri>) {
        if let Some(uri) = uri
            && let Some(changed) = change(uri)
        {
            *uri = changed;
        }
    }
}

/// Without a router that strips prefixes.
#[cfg(not(feature = "axum"))]
mod imp {
    use http::request::Parts;
    use http::{Request, Uri};

    /// Leaves the head as it is.
    pub(crate) fn enter(_: &mut Parts) {}

    /// Leaves the request as it is.
    pub(crate) fn leave<B>(_: &mut Request<B>) {}

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
