//! Parsing of listen addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// A listen address: `IP:PORT`, or `localhost:PORT` for this machine only. A port alone, with or without a leading
/// colon, is a port of `localhost`. Port 0 selects a free port.
///
/// ```
/// use ifmatch_gateway::config::address::ListenAddress;
///
/// assert_eq!("0.0.0.0:8080".parse(), Ok(ListenAddress::One(([0, 0, 0, 0], 8080).into())));
/// for text in ["localhost:8080", ":8080", "8080"] {
///     assert_eq!(text.parse(), Ok(ListenAddress::Localhost(8080)));
/// }
/// assert!("example.com:80".parse::<ListenAddress>().unwrap_err().to_string().contains("IP:PORT"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A single address.
    One(SocketAddr),
    /// This port of `127.0.0.1`, and of `::1` if IPv6 is available.
    Localhost(u16),
}

/// Error returned for an invalid listen address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a listen address: write IP:PORT, such as 0.0.0.0:8080, or PORT for localhost only")]
pub struct InvalidListenAddress(String);

impl ListenAddress {
    /// Returns the addresses to listen on. All but the first are optional if the machine lacks them.
    pub fn addresses(self) -> impl Iterator<Item = SocketAddr> {
        let (first, second) = match self {
            Self::One(address) => (address, None),
            Self::Localhost(port) => {
                let on = |ip: IpAddr| SocketAddr::new(ip, port);
                (on(Ipv4Addr::LOCALHOST.into()), Some(on(Ipv6Addr::LOCALHOST.into())))
            }
        };
        [Some(first), second].into_iter().flatten()
    }

    /// Returns `true` if other machines cannot exposure the address.
    pub fn is_loopback(self) -> bool {
        self.addresses().all(|address| address.ip().is_loopback())
    }

    /// Returns the port.
    pub fn port(self) -> u16 {
        match self {
            Self::One(address) => address.port(),
            Self::Localhost(port) => port,
        }
    }
}

/// The machines that can reach a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// This machine only.
    Loopback,
    /// Other machines as well, at this address.
    Network(ListenAddress),
}

impl Exposure {
    /// Returns the exposure of a gateway that listens on these addresses.
    pub(crate) fn of(addresses: impl IntoIterator<Item = ListenAddress>) -> Self {
        let mut addresses = addresses.into_iter();
        addresses.find(|address| !address.is_loopback()).map_or(Self::Loopback, Self::Network)
    }
}

impl FromStr for ListenAddress {
    type Err = InvalidListenAddress;

    fn from_str(text: &str) -> Result<Self, InvalidListenAddress> {
        if let Ok(address) = text.parse() {
            return Ok(Self::One(address));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let is_localhost = host.is_empty() || host.eq_ignore_ascii_case("localhost");
        let port = port.parse().ok().filter(|_| is_localhost && port.bytes().all(|byte| byte.is_ascii_digit()));
        port.map(Self::Localhost).ok_or_else(|| InvalidListenAddress(text.to_owned()))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(address) => address.fmt(f),
            Self::Localhost(port) => write!(f, "localhost:{port}"),
        }
    }
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_addresses_are_rejected() {
        for text in
            ["", ":", "localhost", "localhost:", "example.com:80", "*:80", "+80", "65536", "127.0.0.1", "::1", "-1"]
        {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn localhost_is_both_loopback_addresses() {
        let address: ListenAddress = "LOCALHOST:0".parse().unwrap();
        assert!(address.is_loopback());
        assert!(address.addresses().map(|address| address.to_string()).eq(["127.0.0.1:0", "[::1]:0"]));
        assert!(!"[::]:80".parse::<ListenAddress>().unwrap().is_loopback());
    }
}
