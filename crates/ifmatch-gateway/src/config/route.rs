//! The setting of a route: a text for flags, and a table with more options in the file.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ifmatch_proxy::{FieldRules, InvalidUpstream, Messages, Proxy, Redirect, Upstream};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Status of a redirection, unless it is set: permanent, and the method stays the same.
const STATUS: u16 = 308;

/// A route: `HOST/PATH=URL,URL`, or a table.
///
/// ```
/// use ifmatch_gateway::config::route::RouteSetting;
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
}

/// Error returned for a route without a destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a valid route: write HOST/PATH=URL, for example example.com/images=http://10.0.0.7:8080")]
pub struct InvalidRoute(String);

impl Route {
    /// Creates a route to servers.
    pub(crate) fn to(pattern: &str, upstream: Vec<String>) -> Self {
        Self { pattern: pattern.to_owned(), upstream, ..Self::default() }
    }

    /// Returns the upstream, unless the route redirects.
    pub(crate) fn upstream(&self) -> Option<Result<Upstream, InvalidUpstream>> {
        self.redirect.is_none().then(|| Upstream::parse(&self.upstream))
    }

    /// Returns the route of the proxy, with its configured upstream.
    ///
    /// # Errors
    /// Fails if the target of a redirection or a rule for header fields is invalid.
    pub(crate) fn build(&self, upstream: Option<Upstream>) -> Result<ifmatch_proxy::Route, InvalidUpstream> {
        let route: ifmatch_proxy::Route = match (upstream, &self.redirect) {
            (Some(upstream), _) => upstream.into(),
            (None, target) => {
                Redirect::new(self.status.unwrap_or(STATUS), target.as_deref().unwrap_or_default())?.into()
            }
        };
        let route = if self.strip_prefix { route.strip_prefix() } else { route };
        let route = route.request_fields(self.request_headers.parse(Messages::Requests)?);
        Ok(route.response_fields(self.response_headers.parse(Messages::Responses)?))
    }

    /// Returns the destination, for people.
    pub(crate) fn destination(&self) -> String {
        self.redirect.clone().unwrap_or_else(|| self.upstream.join(", "))
    }

    /// Checks a route of the file, so that an error has its line.
    fn check(&self) -> Result<(), String> {
        if self.upstream.is_empty() == self.redirect.is_none() {
            return Err("a route needs either upstream or redirect".to_owned());
        }
        if self.status.is_some() && self.redirect.is_none() {
            return Err("status needs redirect, the target".to_owned());
        }
        let built = self.upstream().transpose().and_then(|upstream| self.build(upstream));
        let added = built.and_then(|route| Proxy::builder().route(&self.pattern, route));
        added.map(drop).map_err(|error| error.to_string())
    }
}

impl HeaderRules {
    fn parse(&self, messages: Messages) -> Result<FieldRules, InvalidUpstream> {
        let rules = self.remove.iter().try_fold(FieldRules::new(messages), |rules, name| rules.remove(name))?;
        let rules = self.set.iter().try_fold(rules, |rules, (name, value)| rules.set(name, value))?;
        self.add.iter().try_fold(rules, |rules, (name, value)| rules.add(name, value))
    }
}

impl FromStr for RouteSetting {
    type Err = InvalidRoute;

    fn from_str(text: &str) -> Result<Self, InvalidRoute> {
        let (pattern, upstream) = text.split_once('=').ok_or_else(|| InvalidRoute(text.to_owned()))?;
        Ok(Self(Route::to(pattern, upstream.split(',').map(str::to_owned).collect())))
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
