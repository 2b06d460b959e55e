//! Parsing of optional listen addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use crate::config::address::ListenAddress;

/// An address to listen on, or `off`.
///
/// ```
/// use ifmatch_gateway::config::optional_address::OptionalAddress;
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

impl OptionalAddress {
    /// Returns the address.
    pub fn address(self) -> Option<ListenAddress> {
        match self {
            Self::Off => None,
            Self::On(address) => Some(address),
        }
    }
}

/// The address of a listener that need not be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalListener {
    /// The address, if there is a listener.
    pub address: Option<ListenAddress>,
    /// `true` if the address was set. The default one may be in use.
    pub(crate) is_requested: bool,
}

/// Error returned for text that is neither a listen address nor `off`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a listen address: write IP:PORT, PORT for localhost only, or off")]
pub struct InvalidOptionalAddress(String);

impl FromStr for OptionalAddress {
    type Err = InvalidOptionalAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        text.parse().map(Self::On).map_err(|_| InvalidOptionalAddress(text.to_owned()))
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

impl<'de> Deserialize<'de> for OptionalAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
