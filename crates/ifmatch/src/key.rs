//! Keys: which resource a request addresses.

use std::fmt::Write as _;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use ifmatch_core::digest::ContentHash;
use ifmatch_register::{InvalidKey, Key};
use percent_encoding::percent_decode_str;

use crate::mount;

/// Identifies the resource that a request addresses, by a key.
///
/// Requests that change the same resource must have the same key, whatever their method, or two writers can both
/// succeed. Requests to different resources should have different keys, or they wait for each other needlessly.
///
/// Closures implement this trait. With the feature `axum`, `head.uri` is the URI that the client sent, even in a nested router.
///
/// ```
/// use http::request::Parts;
/// use ifmatch::ConditionalLayer;
/// use ifmatch::Key;
///
/// // All of a user's settings are one document.
/// let layer = ConditionalLayer::builder()
///     .key(|head: &Parts| Key::new(head.uri.path().split('/').take(3).collect::<Vec<_>>().join("/")))
///     .build();
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the resource's key.
    ///
    /// ```
    /// use http::request::Parts;
    /// use ifmatch::key::{KeyExtractor, PathKey};
    /// use ifmatch::{InvalidKey, Key};
    ///
    /// /// Documents are found by their number, under several paths.
    /// struct Number;
    ///
    /// impl KeyExtractor for Number {
    ///     fn key(&self, head: &Parts) -> Result<Key, InvalidKey> {
    ///         match head.uri.path().rsplit('/').next() {
    ///             Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => Key::new(number),
    ///             _ => PathKey::new().key(head),
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the request doesn't name a valid resource. The client gets 400.
    fn key(&self, head: &Parts) -> Result<Key, InvalidKey>;
}

impl<F> KeyExtractor for F
where
    F: Fn(&Parts) -> Result<Key, InvalidKey> + Send + Sync + 'static,
{
    fn key(&self, head: &Parts) -> Result<Key, InvalidKey> {
        self(head)
    }
}

/// Uses the path as the key. This is the default extractor.
///
/// Paths are normalized: percent-encoded characters are decoded, except for slashes, percent signs, control characters
/// and non-ASCII bytes. The query isn't part of the key, unless you add it with [`with_query`](Self::with_query) or
/// [`with_parameters`](Self::with_parameters). A path that's too long for a key is replaced by its hash. With the
/// feature `axum`, the path is the one that the client sent, even in a nested router.
///
/// ```
/// use http::Request;
/// use ifmatch::key::{KeyExtractor, PathKey};
///
/// let key = |uri| PathKey::new().key(&Request::get(uri).body(()).unwrap().into_parts().0);
/// assert_eq!(key("/notes/%61?page=2")?.as_str(), "/notes/a");
/// assert_ne!(key("/notes/a%2fb")?, key("/notes/a/b")?);
/// # Ok::<(), ifmatch::InvalidKey>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PathKey {
    query: Query,
    tenant: Option<HeaderName>,
}

#[derive(Clone, Debug, Default)]
enum Query {
    #[default]
    None,
    All,
    Named(Vec<String>),
}

impl PathKey {
    /// Creates an extractor that uses the path alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the whole query to the key, for services where each query is a separate resource.
    ///
    /// ```
    /// # use http::Request;
    /// # use ifmatch::key::{KeyExtractor, PathKey};
    /// let (head, ()) = Request::get("/notes?id=7").body(()).unwrap().into_parts();
    /// assert_eq!(PathKey::new().with_query().key(&head).unwrap().as_str(), "/notes?id=7");
    /// ```
    #[must_use]
    pub fn with_query(mut self) -> Self {
        self.query = Query::All;
        self
    }

    /// Adds these query parameters to the key in the given order, whatever their order in the request.
    ///
    /// ```
    /// # use http::Request;
    /// # use ifmatch::key::{KeyExtractor, PathKey};
    /// let (head, ()) = Request::get("/notes?utm=x&id=7").body(()).unwrap().into_parts();
    /// assert_eq!(PathKey::new().with_parameters(["id"]).key(&head).unwrap().as_str(), "/notes?id=7");
    /// ```
    #[must_use]
    pub fn with_parameters<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.query = Query::Named(names.into_iter().map(Into::into).collect());
        self
    }

    /// Prefixes the path with the value of a header field, so each tenant has its own resources. Clients must not be
    /// able to set this field themselves.
    ///
    /// ```
    /// # use http::{HeaderName, Request};
    /// # use ifmatch::key::{KeyExtractor, PathKey};
    /// let key = PathKey::new().with_tenant(HeaderName::from_static("x-tenant"));
    /// let request = Request::get("/notes").header("x-tenant", "acme");
    /// let (head, ()) = request.body(()).unwrap().into_parts();
    /// assert_eq!(key.key(&head).unwrap().as_str(), "acme/notes");
    /// ```
    #[must_use]
    pub fn with_tenant(mut self, header: HeaderName) -> Self {
        self.tenant = Some(header);
        self
    }
}

impl KeyExtractor for PathKey {
    fn key(&self, head: &Parts) -> Result<Key, InvalidKey> {
        let uri = mount::uri(head);
        let path = uri.path();
        if self.tenant.is_none() && matches!(self.query, Query::None) && is_canonical(path) {
            return shorten(path);
        }
        let mut text = String::with_capacity(path.len() + 16);
        for value in self.tenant.iter().flat_map(|name| head.headers.get_all(name)) {
            encode(&mut text, value.as_bytes(), b"/,");
        }
        canonicalize(&mut text, path);
        let query = uri.query().unwrap_or_default();
        match &self.query {
            Query::None => {}
            Query::All if query.is_empty() => {}
            Query::All => {
                text.push('?');
                text.push_str(query);
            }
            Query::Named(names) => append_named(&mut text, query, names),
        }
        shorten(&text)
    }
}

fn append_named(text: &mut String, query: &str, names: &[String]) {
    let mut separator = '?';
    for name in names {
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        for (_, value) in pairs.filter(|(given, _)| percent_decode_str(given).eq(name.bytes())) {
            text.push(separator);
            encode(text, name.as_bytes(), b"=&");
            text.push('=');
            encode(text, &percent_decode_str(&value.replace('+', "%20")).collect::<Vec<_>>(), b"=&");
            separator = '&';
        }
    }
}

/// Returns the text as a key, or its hash if it's too long for a key.
///
/// ```
/// use ifmatch::key::shorten;
/// assert_eq!(shorten("/notes/7")?.as_str(), "/notes/7");
/// assert!(shorten(&"long".repeat(1_000))?.as_str().starts_with("sha-256:"));
/// # Ok::<(), ifmatch::InvalidKey>(())
/// ```
///
/// # Errors
/// Returns an error if the text is empty or contains NUL.
pub fn shorten(text: &str) -> Result<Key, InvalidKey> {
    if text.len() > Key::MAX_LEN {
        return Key::new(format!("sha-256:{}", ContentHash::of(text.as_bytes()).hex()));
    }
    Key::new(Arc::<str>::from(text))
}

/// Returns `true` if there is nothing to decode or to encode.
fn is_canonical(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%')
}

/// Appends a path with each character in its canonical form. An encoded slash stays encoded, since it doesn't separate
/// segments.
fn canonicalize(text: &mut String, path: &str) {
    for (at, segment) in path.split('/').enumerate() {
        if at > 0 {
            text.push('/');
        }
        encode(text, &percent_decode_str(segment).collect::<Vec<_>>(), b"/?#");
    }
}

/// Appends bytes, and percent-encodes those that are reserved, invisible or not ASCII.
fn encode(text: &mut String, bytes: &[u8], reserved: &[u8]) {
    for byte in bytes {
        if byte.is_ascii_graphic() && *byte != b'%' && !reserved.contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a string can't fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
}
