//! Listen addresses: their text, the machines that they can be reached from, and whether two of them have one port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::units::deserialize_by_from_str;
use crate::error::Error;

/// A listen address: `IP:PORT`, or `localhost:PORT` for this machine only. A port alone, with or without a leading
/// colon, is a port of `localhost`. Port 0 selects a free port.
///
/// ```
/// use ifmatch_gateway_config::address::ListenAddress;
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
#[error("write IP:PORT, such as 0.0.0.0:8080, or PORT for localhost")]
pub struct InvalidListenAddress;

impl ListenAddress {
    /// Returns the addresses to listen on. All but the first are optional if the machine lacks them.
    pub fn addresses(self) -> impl Iterator<Item = SocketAddr> {
        let (first, second) = match self {
            Self::One(address) => (address, None),
            Self::Localhost(port) => {
                let on = |ip: IpAddr| SocketAddr::new(ip, port);
                (
                    on(Ipv4Addr::LOCALHOST.into()),
                    Some(on(Ipv6Addr::LOCALHOST.into())),
                )
            }
        };
        [Some(first), second].into_iter().flatten()
    }

    /// Returns `true` if other machines can't reach the address.
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
        addresses
            .find(|address| !address.is_loopback())
            .map_or(Self::Loopback, Self::Network)
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
        let port = port
            .parse()
            .ok()
            .filter(|_| is_localhost && port.bytes().all(|byte| byte.is_ascii_digit()));
        port.map(Self::Localhost).ok_or(InvalidListenAddress)
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

deserialize_by_from_str!(ListenAddress: "an address, such as \"127.0.0.1:8080\"");

/// An address to listen on, or `off`.
///
/// ```
/// use ifmatch_gateway_config::address::OptionalAddress;
///
/// assert_eq!("off".parse(), Ok(OptionalAddress::Off));
/// assert_eq!("10002".parse(), Ok(OptionalAddress::On("localhost:10002".parse().unwrap())));
/// assert!("on".parse::<OptionalAddress>().unwrap_err().to_string().contains("IP:PORT"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionalAddress {
    /// Do not listen.
    Off,
    /// Listen at this address.
    On(ListenAddress),
}

impl OptionalListener {
    /// Returns the listener at the address that is set, or else at the default one.
    pub(crate) fn new(set: Option<OptionalAddress>, default: SocketAddr) -> Self {
        let address = set
            .unwrap_or(OptionalAddress::On(ListenAddress::One(default)))
            .address();
        Self {
            address,
            is_requested: set.is_some() && address.is_some(),
        }
    }

    /// Returns the address if it was set.
    pub(crate) fn requested(&self) -> Option<ListenAddress> {
        self.address.filter(|_| self.is_requested)
    }
}

impl OptionalAddress {
    /// Returns the address.
    pub fn address(self) -> Option<ListenAddress> {
        match self {
            Self::Off => None,
            Self::On(address) => Some(address),
        }
    }
}

/// The address of a listener that needn't be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalListener {
    /// The address, if there is a listener.
    pub address: Option<ListenAddress>,
    /// `true` if the address was set. The default one may be in use.
    pub is_requested: bool,
}

/// Error returned for text that is neither a listen address nor `off`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write IP:PORT, PORT for localhost, or off")]
pub struct InvalidOptionalAddress;

impl FromStr for OptionalAddress {
    type Err = InvalidOptionalAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        text.parse()
            .map(Self::On)
            .map_err(|_| InvalidOptionalAddress)
    }
}

impl fmt::Display for OptionalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::On(address) => address.fmt(f),
        }
    }
}

deserialize_by_from_str!(OptionalAddress: "an address, such as \"127.0.0.1:8080\", or \"off\"");

/// Checks that the addresses of these listeners, each with its flag, can all be bound.
///
/// # Errors
/// Names two addresses that include the same one.
pub(crate) fn check_listeners(listeners: &[(&'static str, &[ListenAddress])]) -> Result<(), Error> {
    let all = listeners
        .iter()
        .flat_map(|(flag, list)| list.iter().map(move |address| (*flag, *list, *address)));
    let all: Vec<_> = all.collect();
    for (at, (flag, list, address)) in all.iter().enumerate() {
        for (other_flag, other_list, other) in &all[..at] {
            if overlap((list, *address), (other_list, *other)) {
                return Err(Error::setting(
                    flag,
                    format!(
                        "{address} and {other_flag} {other} share a port. Give each listener its own."
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Returns `true` if two addresses, each with the list that it belongs to, have an address and port in common.
fn overlap(
    (list, address): (&[ListenAddress], ListenAddress),
    (other_list, other): (&[ListenAddress], ListenAddress),
) -> bool {
    let pairs = address
        .addresses()
        .flat_map(|one| other.addresses().map(move |other| (one, other)));
    pairs.into_iter().any(|(one, other)| {
        one.port() != 0
            && one.port() == other.port()
            && (includes(list, one, other) || includes(other_list, other, one))
    })
}

/// Returns `true` if an address of this list includes another one with the same port. `[::]` includes IPv4's, unless its list
/// has one with the same port.
fn includes(list: &[ListenAddress], address: SocketAddr, other: SocketAddr) -> bool {
    let is_both = || {
        let mut of_list = list.iter().flat_map(|listed| listed.addresses());
        !of_list.any(|listed| listed.is_ipv4() && listed.port() == address.port())
    };
    address.ip() == other.ip()
        || address.ip().is_unspecified()
            && (address.is_ipv4() == other.is_ipv4() || address.is_ipv6() && is_both())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_addresses_are_rejected() {
        for text in [
            "",
            ":",
            "localhost",
            "localhost:",
            "example.com:80",
            "*:80",
            "+80",
            "65536",
            "127.0.0.1",
            "::1",
            "-1",
        ] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn localhost_is_both_loopback_addresses() {
        let address: ListenAddress = "LOCALHOST:0".parse().unwrap();
        assert!(address.is_loopback());
        assert!(
            address
                .addresses()
                .map(|address| address.to_string())
                .eq(["127.0.0.1:0", "[::1]:0"])
        );
        assert!(!"[::]:80".parse::<ListenAddress>().unwrap().is_loopback());
    }

    #[test]
    fn two_listeners_cannot_have_one_port() {
        let parse = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| text.parse().unwrap())
                .collect::<Vec<ListenAddress>>()
        };
        for (site, admin, expected) in [
            (&["127.0.0.1:80"][..], &["127.0.0.1:80"][..], true),
            (&["0.0.0.0:80"], &["127.0.0.1:80"], true),
            (&["127.0.0.1:80"], &["0.0.0.0:80"], true),
            (&["[::]:80"], &["127.0.0.1:80"], true),
            (&["[::]:80"], &["[::1]:80"], true),
            (&["80"], &["[::1]:80"], true),
            (&["[::]:80", "10.0.0.1:80"], &["127.0.0.1:80"], false),
            (&["[::]:80", "10.0.0.1:80"], &["10.0.0.1:80"], true),
            (&["[::]:80", "0.0.0.0:80"], &["81"], false),
            (&["127.0.0.1:80", "127.0.0.1:80"], &[], true),
            (&["0.0.0.0:80", "127.0.0.1:80"], &[], true),
            (&["127.0.0.1:80", "127.0.0.2:80"], &[], false),
            (&["127.0.0.1:80"], &["[::1]:80"], false),
            (&["127.0.0.1:0"], &["127.0.0.1:0"], false),
        ] {
            let (site, admin) = (parse(site), parse(admin));
            let found = check_listeners(&[("--listen", &site), ("--admin-listen", &admin)]);
            assert_eq!(found.is_err(), expected, "{site:?} {admin:?}");
            if let Err(error) = found {
                assert!(error.to_string().contains("--listen"), "{error}");
            }
        }
    }
}
