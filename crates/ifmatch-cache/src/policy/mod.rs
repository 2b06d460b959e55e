//! The rules for caches, as pure functions of header fields and times.

pub mod age;
pub mod cache_control;
pub mod cache_status;
pub mod cdn_cache_control;
pub mod content_range;
pub mod credential;
pub mod freshness;
pub mod groups;
pub mod invalidate;
pub mod query;
pub mod resource_rules;
pub mod reuse;
pub mod storable;
pub mod update;
pub mod vary;

pub(crate) mod fields;

/// The users that a cache's responses are for (RFC 9111 §1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    /// Many users. Some directives apply only here: `s-maxage`, `proxy-revalidate`, `private` and `CDN-Cache-Control`.
    #[default]
    Shared,
    /// One user, as in a browser.
    Private,
}
