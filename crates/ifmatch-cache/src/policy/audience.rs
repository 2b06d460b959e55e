//! Shared and private caches (RFC 9111 §1).

/// The users that a cache's responses are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// Many users. Some directives apply only here: `s-maxage`, `proxy-revalidate`, `private` and `CDN-Cache-Control`.
    #[default]
    Shared,
    /// One user, as in a browser.
    Private,
}
