//! The hosts of a route: one, all below a name, or any.

use http::uri::Authority;

/// The hosts of a route, in lower case, without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RouteHosts {
    Any,
    /// All names that end with this text, which begins with a dot.
    Below(String),
    One(String),
}

impl RouteHosts {
    /// Parses a host, `*.` and a host, or nothing. `None` if it is invalid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~[]:%".contains(&byte);
        let host = |text: &str| {
            text.bytes()
                .all(is_valid)
                .then(|| text.parse().ok().as_ref().map(plain))
                .flatten()
        };
        match text.strip_prefix("*.") {
            _ if text.is_empty() => Some(Self::Any),
            // A port, or an address of IPv6, has no names below.
            Some(domain) => Some(Self::Below(format!(
                ".{}",
                host(domain).filter(|_| !domain.contains(['[', ':', '*']))?
            ))),
            None => Some(Self::One(host(text)?)),
        }
    }

    /// Returns `true` for a host of the route.
    pub(super) fn include(&self, host: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            // `.example` alone isn't a name.
            Self::Below(domain) => host
                .is_some_and(|host| host.len() > domain.len() && host.ends_with(domain.as_str())),
            Self::One(name) => host == Some(name),
        }
    }

    /// Orders routes: one for a host comes before those for all hosts below a longer, and then a shorter, name.
    pub(super) fn rank(&self) -> (bool, usize) {
        match self {
            Self::Any => (false, 0),
            Self::Below(domain) => (false, domain.len()),
            Self::One(_) => (true, 0),
        }
    }
}

/// Returns a host in lower case, without a port and without a trailing dot.
pub(super) fn plain(authority: &Authority) -> String {
    let host = authority.host();
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}
