//! The cache of a route: off, or lifetimes by status and times for stale responses.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use ifmatch_cache::policy::resource_rules::{Lifetimes, ResourceRules};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::units::Span;

/// `cache = "off"`, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteCache {
    /// Nothing is looked up or stored.
    Off,
    /// Rules for what is stored.
    Rules(CacheRules),
}

/// Rules for the responses of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CacheRules {
    /// Lifetimes of responses that state none.
    pub ttl: Ttl,
    /// Lifetimes in place of those that responses state.
    pub override_ttl: Ttl,
    /// Time to use stale responses in place of errors.
    pub stale_if_error: Option<Span>,
    /// Time to use stale responses during their revalidation.
    pub stale_while_revalidate: Option<Span>,
}

/// `"10m"` for successes, or a lifetime for each status: `{ 200 = "10m", 404 = "1m" }`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ttl(pub Lifetimes);

impl Default for RouteCache {
    fn default() -> Self {
        Self::Rules(CacheRules::default())
    }
}

impl RouteCache {
    /// Returns the rules for the cache.
    pub(crate) fn rules(&self) -> ResourceRules {
        match self {
            Self::Off => ResourceRules { is_off: true, ..ResourceRules::default() },
            Self::Rules(rules) => ResourceRules {
                ttl: rules.ttl.0.clone(),
                override_ttl: rules.override_ttl.0.clone(),
                if_error: rules.stale_if_error.map(Span::duration),
                while_revalidate: rules.stale_while_revalidate.map(Span::duration),
                ..ResourceRules::default()
            },
        }
    }
}

impl<'de> Deserialize<'de> for RouteCache {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OffOrTable;

        impl<'de> Visitor<'de> for OffOrTable {
            type Value = RouteCache;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"off\", or a table with ttl, override-ttl, stale-if-error or stale-while-revalidate")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RouteCache, E> {
                if text == "off" {
                    Ok(RouteCache::Off)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<RouteCache, A::Error> {
                CacheRules::deserialize(MapAccessDeserializer::new(table)).map(RouteCache::Rules)
            }
        }

        deserializer.deserialize_any(OffOrTable)
    }
}

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeOrTable;

        impl<'de> Visitor<'de> for TimeOrTable {
            type Value = Ttl;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as 10m, or a table of times by status: { 200 = \"10m\", 404 = \"1m\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ttl, E> {
                text.parse().map(|span: Span| Ttl(Lifetimes::of_successes(span.duration()))).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Ttl, A::Error> {
                let mut lifetimes: Vec<(StatusCode, Duration)> = Vec::new();
                while let Some(name) = table.next_key::<String>()? {
                    let status = status(&name).ok_or_else(|| {
                        de::Error::custom(format!(
                            "'{name}' is not a status that can have a lifetime: write one such as 200 or 404 (the parts of a \
                             200, with 206, have that of 200)"
                        ))
                    })?;
                    lifetimes.push((status, table.next_value::<Span>()?.duration()));
                }
                Ok(Ttl(lifetimes.into_iter().collect()))
            }
        }

        deserializer.deserialize_any(TimeOrTable)
    }
}

/// Parses a status whose responses can be stored.
fn status(text: &str) -> Option<StatusCode> {
    let is_storable = |status: &StatusCode| {
        matches!(status.as_u16(), 200..=599)
            && ![StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED].contains(status)
    };
    StatusCode::from_bytes(text.as_bytes()).ok().filter(is_storable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(toml: &str) -> Result<ResourceRules, String> {
        #[derive(Deserialize)]
        struct Route {
            cache: RouteCache,
        }
        toml::from_str(toml).map(|route: Route| route.cache.rules()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_lifetime_is_for_successes_or_for_each_named_status() {
        let minute = Some(Duration::from_mins(1));
        let plain = rules("cache.ttl = '1m'").unwrap();
        let of = |rules: &ResourceRules, status: u16| rules.ttl.get(StatusCode::from_u16(status).unwrap());
        assert_eq!(
            [200, 206, 301, 302, 404, 503].map(|status| of(&plain, status)),
            [minute, minute, minute, None, None, None]
        );
        for toml in [
            "cache.ttl = { 200 = '1m', 404 = '2s' }",
            "[cache.ttl]\n200 = '1m'\n404 = '2s'",
            "cache.ttl.200 = '1m'\ncache.ttl.404 = '2s'",
        ] {
            let named = rules(toml).unwrap();
            assert_eq!(
                [200, 301, 404, 410].map(|status| of(&named, status)),
                [minute, None, Some(Duration::from_secs(2)), None]
            );
        }
        let other =
            rules("cache = { override-ttl = '1m', stale-if-error = '1m', stale-while-revalidate = '1m' }").unwrap();
        assert_eq!(
            (other.override_ttl.get(StatusCode::OK), other.if_error, other.while_revalidate),
            (minute, minute, minute)
        );
        assert!(rules("cache = 'off'").unwrap().is_off && !other.is_off);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for (toml, part) in [
            ("cache = 'on'", "\"off\""),
            ("cache = 600", "\"off\""),
            ("cache.ttl = '10'", "not a valid duration"),
            ("cache.ttl = 600", "a time such as 10m"),
            ("cache.ttl = { any = '1m' }", "'any' is not a status"),
            ("cache.ttl = { 99 = '1m' }", "'99' is not a status"),
            ("cache.ttl = { 206 = '1m' }", "'206' is not a status"),
            ("cache.ttl = { 304 = '1m' }", "'304' is not a status"),
            ("cache.ttl = { 100 = '1m' }", "'100' is not a status"),
            ("cache.lifetime = '1m'", "unknown field `lifetime`"),
        ] {
            let error = rules(toml).unwrap_err();
            assert!(error.contains(part), "{toml}: {error}");
        }
    }
}
