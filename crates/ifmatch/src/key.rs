//! Which resource a request is about: the key of its record.

use std::fmt::Write as _;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use ifmatch_core::digest::ContentHash;
use ifmatch_register::{InvalidKey, Key};
use percent_encoding::percent_decode_str;

/// Says which resource a request is about.
///
/// Requests that change the same thing must have the same key, whatever their method, or two writers can both
/// believe that they won. Requests about different things should have different keys, or they wait for each other
/// without need. A closure is an extractor too.
///
/// ```
/// use http::request::Parts;
/// use ifmatch::ConditionalLayer;
/// use ifmatch_register::Key;
///
/// // All of a user's settings are one document.
/// let layer = ConditionalLayer::builder()
///     .key(|head: &Parts| Key::new(head.uri.path().split('/').take(3).collect::<Vec<_>>().join("/")))
///     .build();
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of the resource.
    ///
    /// # Errors
    /// If there can be no such resource. The request is answered 400.
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

/// The path is the resource: the default extractor.
///
/// Two spellings of a path are one key: percent-encoded characters count as the characters themselves, except for
/// the slash, the percent sign, controls and what is not ASCII. The query selects a representation of the
/// resource, unless [`with_query`](Self::with_query) says otherwise. A path too long for a key is replaced by its hash.
///
/// ```
/// use http::Request;
/// use ifmatch::key::{KeyExtractor, PathKey};
///
/// let key = |uri| PathKey::new().key(&Request::get(uri).body(()).unwrap().into_parts().0);
/// assert_eq!(key("/notes/%61?page=2")?.as_str(), "/notes/a");
/// assert_ne!(key("/notes/a%2fb")?, key("/notes/a/b")?);
/// # Ok::<(), ifmatch_register::InvalidKey>(())
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
    /// The path alone.
    ///
    /// ```
    /// # use ifmatch::key::PathKey;
    /// let key = PathKey::new();
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the whole query to the key: for services where each query is a resource to write to.
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

    /// Adds these parameters of the query to the key, in the order given here, whatever their order in the request.
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

    /// Puts the value of a header field before the path, so that tenants have resources of their own. Make sure that
    /// clients cannot choose it freely.
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
        let path = head.uri.path();
        if self.tenant.is_none() && matches!(self.query, Query::None) && is_canonical(path) {
            return shorten(path);
        }
        let mut text = String::with_capacity(path.len() + 16);
        for value in self.tenant.iter().flat_map(|name| head.headers.get_all(name)) {
            encode(&mut text, value.as_bytes(), b"/,");
        }
        canonicalise(&mut text, path);
        let query = head.uri.query().unwrap_or_default();
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

/// A longer path than fits into a key becomes its hash, which no path looks like.
fn shorten(text: &str) -> Result<Key, InvalidKey> {
    if text.len() > Key::MAX_LEN {
        return Key::new(format!("sha-256:{}", ContentHash::of(text.as_bytes()).hex()));
    }
    Key::new(Arc::<str>::from(text))
}

/// Whether a path has nothing to decode or to encode.
fn is_canonical(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%')
}

/// Appends a path in which each character has one spelling. An encoded slash stays encoded: it separates nothing.
fn canonicalise(text: &mut String, path: &str) {
    for (at, segment) in path.split('/').enumerate() {
        if at > 0 {
            text.push('/');
        }
        encode(text, &percent_decode_str(segment).collect::<Vec<_>>(), b"/?#");
    }
}

/// Appends bytes, and percent-encodes those that are reserved, not visible, or not ASCII.
fn encode(text: &mut String, bytes: &[u8], reserved: &[u8]) {
    for byte in bytes {
        if byte.is_ascii_graphic() && *byte != b'%' && !reserved.contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
}
