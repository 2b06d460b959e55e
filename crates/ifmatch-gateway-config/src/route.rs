//! The setting of a route: a text for flags, and a table with more options in the file, among them the cache of the route.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use ifmatch_cache::policy::resource_rules::{Lifetimes, ResourceRules};
use ifmatch_proxy::{
    FieldRules, HealthCheck, InvalidUpstream, Messages, Proxy, Redirect, Upstream,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::units::{ByteSize, Span};

/// Status of a redirection, unless it is set: permanent, and the method stays the same.
const STATUS: u16 = 308;

/// A route: `HOST/PATH=URL,URL`, or a table.
///
/// ```
/// use ifmatch_gateway_config::route::RouteSetting;
///
/// let route: RouteSetting = "example.com/images=http://10.0.0.7:8080 weight=2,http://10.0.0.8:8080".parse().unwrap();
/// assert_eq!((route.0.pattern.as_str(), route.0.upstream.len()), ("example.com/images", 2));
/// assert!("http://10.0.0.7".parse::<RouteSetting>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSetting(pub Route);

/// The destination of the requests for a host, a path or both, and the changes to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Route {
    /// Host, path or both: `example.com/images`.
    #[serde(rename = "match")]
    pub pattern: String,
    /// URLs of the servers, with their options.
    #[serde(default)]
    pub upstream: Vec<String>,
    /// Target of a redirection, in place of an upstream. `{path}` at its end is the path and the query of the request.
    pub redirect: Option<String>,
    /// Status of the redirection.
    pub status: Option<u16>,
    /// `true` to remove the path of the route from the paths of requests.
    #[serde(default)]
    pub strip_prefix: bool,
    /// Changes to the header fields of requests to the upstream.
    #[serde(default)]
    pub request_headers: HeaderRules,
    /// Changes to the header fields of responses, before they are stored.
    #[serde(default)]
    pub response_headers: HeaderRules,
    /// The cache of the route.
    #[serde(default)]
    pub cache: RouteCache,
    /// In place of `--answer-timeout`.
    pub answer_timeout: Option<Span>,
    /// In place of `--connect-timeout`.
    pub connect_timeout: Option<Span>,
    /// In place of `--max-body-size`.
    pub max_body_size: Option<ByteSize>,
    /// In place of `--health-path`.
    pub health_path: Option<String>,
}

/// What the layers in front of the proxy do for a route.
#[derive(Debug)]
pub struct InFront {
    /// Maximum size of a request body, in place of the server's.
    pub max_body: Option<u64>,
    /// The rules of the cache, if it has any for the route.
    pub cache: Option<Arc<ResourceRules>>,
    /// Fields of responses that clients don't get, if any.
    pub hidden: Option<FieldRules>,
}

/// Changes to header fields, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeaderRules {
    /// Names of fields to remove.
    pub remove: Vec<String>,
    /// Fields to replace.
    pub set: BTreeMap<String, String>,
    /// Fields to add a line of.
    pub add: BTreeMap<String, String>,
    /// Names of fields of responses that the cache sees, and clients don't.
    pub hide: Vec<String>,
}

/// Error returned for a route without a destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a route. Write HOST/PATH=URL, such as example.com/images=http://10.0.0.7:8080"
)]
pub struct InvalidRoute(String);

impl Route {
    /// Creates a route to servers.
    pub(crate) fn to(pattern: &str, upstream: Vec<String>) -> Self {
        Self {
            pattern: pattern.to_owned(),
            upstream,
            ..Self::default()
        }
    }

    /// Returns the upstream, unless the route redirects.
    pub(crate) fn upstream(&self) -> Option<Result<Upstream, InvalidUpstream>> {
        self.redirect
            .is_none()
            .then(|| Upstream::parse(&self.upstream))
    }

    /// Returns the route of the proxy, with its configured upstream. Its health check, if it has one, differs from `health` by its
    /// path.
    ///
    /// # Errors
    /// Fails if the target of a redirection or a rule for header fields is invalid.
    pub(crate) fn build(
        &self,
        upstream: Option<Upstream>,
        health: &HealthCheck,
    ) -> Result<ifmatch_proxy::Route, InvalidUpstream> {
        let mut route: ifmatch_proxy::Route = match (upstream, &self.redirect) {
            (Some(upstream), _) => upstream.into(),
            (None, target) => Redirect::new(
                self.status.unwrap_or(STATUS),
                target.as_deref().unwrap_or_default(),
            )?
            .into(),
        };
        if self.strip_prefix {
            route = route.strip_prefix();
        }
        if let Some(timeout) = self.answer_timeout {
            route = route.answer_timeout(timeout.duration());
        }
        if let Some(timeout) = self.connect_timeout {
            route = route.connect_timeout(timeout.duration());
        }
        if let Some(path) = self.health_path.clone() {
            route = route.health_check(HealthCheck {
                path,
                ..health.clone()
            });
        }
        let requests = self.request_headers.parse(Messages::Requests)?;
        if let Some(in_front) = self.in_front(&requests)? {
            route = route.attach(in_front);
        }
        route = route.request_fields(requests);
        Ok(route.response_fields(self.response_headers.parse(Messages::Responses)?))
    }

    /// Returns what the layers in front do for the route, if anything, given the changes to its requests. The cache decides by the fields
    /// that the upstream gets from clients.
    fn in_front(&self, requests: &FieldRules) -> Result<Option<InFront>, InvalidUpstream> {
        let rules = ResourceRules {
            unsent: requests.replaced().cloned().collect(),
            ..self.cache.rules()
        };
        let none = FieldRules::new(Messages::Responses);
        let hidden = self
            .response_headers
            .hide
            .iter()
            .try_fold(none, |rules, name| rules.remove(name))?;
        let in_front = InFront {
            max_body: self.max_body_size.map(ByteSize::bytes),
            cache: (rules != ResourceRules::default()).then(|| Arc::new(rules)),
            hidden: Some(hidden).filter(|hidden| hidden.replaced().next().is_some()),
        };
        let is_any =
            in_front.max_body.is_some() || in_front.cache.is_some() || in_front.hidden.is_some();
        Ok(is_any.then_some(in_front))
    }

    /// Returns the destination, for people.
    pub fn destination(&self) -> String {
        self.redirect
            .clone()
            .unwrap_or_else(|| self.upstream.join(", "))
    }

    /// Checks a route of the file, so an error has its line: the one with what the message quotes, or with the key that it
    /// begins with.
    fn check(&self) -> Result<(), String> {
        if self.upstream.is_empty() == self.redirect.is_none() {
            return Err("set either upstream or redirect, not both".to_owned());
        }
        if self.status.is_some() && self.redirect.is_none() {
            return Err("status needs redirect: set the target, too".to_owned());
        }
        let of_upstreams = [
            ("answer-timeout", self.answer_timeout.is_some()),
            ("connect-timeout", self.connect_timeout.is_some()),
            ("health-path", self.health_path.is_some()),
            ("max-body-size", self.max_body_size.is_some()),
            ("cache", self.cache != RouteCache::default()),
        ];
        if let Some((key, _)) = of_upstreams
            .iter()
            .find(|(_, is_set)| *is_set && self.redirect.is_some())
        {
            return Err(format!(
                "{key} needs upstream: remove it, since a redirect contacts no server"
            ));
        }
        let is_zero = |span: Option<Span>| span.is_some_and(|span| span.duration().is_zero());
        for (key, span) in [
            ("answer-timeout", self.answer_timeout),
            ("connect-timeout", self.connect_timeout),
        ] {
            if is_zero(span) {
                return Err(format!("{key} can't be 0. Set it to a time such as 30s."));
            }
        }
        if let Some(path) = self
            .health_path
            .as_deref()
            .filter(|path| !path.starts_with('/'))
        {
            return Err(format!(
                "health-path must start with a slash: write '/{path}'"
            ));
        }
        if !self.request_headers.hide.is_empty() {
            return Err("hide is for response-headers. Use remove for request-headers.".to_owned());
        }
        let check = HealthCheck::of("/");
        let built = self
            .upstream()
            .transpose()
            .and_then(|upstream| self.build(upstream, &check));
        let added = built.and_then(|route| Proxy::builder().route(&self.pattern, route));
        added.map(drop).map_err(|error| error.to_string())
    }
}

impl HeaderRules {
    /// Returns the rules for the proxy, in their order.
    fn parse(&self, messages: Messages) -> Result<FieldRules, InvalidUpstream> {
        let rules = self
            .remove
            .iter()
            .try_fold(FieldRules::new(messages), |rules, name| rules.remove(name))?;
        let rules = self
            .set
            .iter()
            .try_fold(rules, |rules, (name, value)| rules.set(name, value))?;
        self.add
            .iter()
            .try_fold(rules, |rules, (name, value)| rules.add(name, value))
    }
}

impl FromStr for RouteSetting {
    type Err = InvalidRoute;

    fn from_str(text: &str) -> Result<Self, InvalidRoute> {
        let (pattern, upstream) = text
            .split_once('=')
            .ok_or_else(|| InvalidRoute(text.to_owned()))?;
        Ok(Self(Route::to(
            pattern,
            upstream.split(',').map(str::to_owned).collect(),
        )))
    }
}

impl<'de> Deserialize<'de> for RouteSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;

        impl<'de> Visitor<'de> for TextOrTable {
            type Value = RouteSetting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("HOST/PATH=URL, or a table with match and upstream")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RouteSetting, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<RouteSetting, A::Error> {
                let route = Route::deserialize(MapAccessDeserializer::new(table))?;
                route.check().map_err(de::Error::custom)?;
                Ok(RouteSetting(route))
            }
        }

        deserializer.deserialize_any(TextOrTable)
    }
}

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
            Self::Off => ResourceRules {
                is_off: true,
                ..ResourceRules::default()
            },
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
                text.parse()
                    .map(|span: Span| Ttl(Lifetimes::of_successes(span.duration())))
                    .map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Ttl, A::Error> {
                let mut lifetimes: Vec<(StatusCode, Duration)> = Vec::new();
                while let Some(name) = table.next_key::<String>()? {
                    let status = status(&name).ok_or_else(|| {
                        de::Error::custom(format!(
                            "'{name}' is not a status that can have a lifetime. Write one such as 200 or 404 (a 206 has the lifetime \
                             of its 200)."
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
    StatusCode::from_bytes(text.as_bytes())
        .ok()
        .filter(is_storable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(toml: &str) -> Result<ResourceRules, String> {
        #[derive(Deserialize)]
        struct Route {
            cache: RouteCache,
        }
        toml::from_str(toml)
            .map(|route: Route| route.cache.rules())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_lifetime_is_for_successes_or_for_each_named_status() {
        let minute = Some(Duration::from_mins(1));
        let plain = rules("cache.ttl = '1m'").unwrap();
        let of = |rules: &ResourceRules, status: u16| {
            rules.ttl.get(StatusCode::from_u16(status).unwrap())
        };
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
        let other = rules(
            "cache = { override-ttl = '1m', stale-if-error = '1m', stale-while-revalidate = '1m' }",
        )
        .unwrap();
        assert_eq!(
            (
                other.override_ttl.get(StatusCode::OK),
                other.if_error,
                other.while_revalidate
            ),
            (minute, minute, minute)
        );
        assert!(rules("cache = 'off'").unwrap().is_off && !other.is_off);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for (toml, part) in [
            ("cache = 'on'", "\"off\""),
            ("cache = 600", "\"off\""),
            ("cache.ttl = '10'", "add a unit, such as 10s"),
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
