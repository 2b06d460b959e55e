//! An address to listen on, or the word that says not to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use crate::address::ListenAddress;

/// An address to listen on, or `off`.
///
/// ```
/// use ifmatch_gateway::switch::Switch;
///
/// assert_eq!("off".parse(), Ok(Switch::Off));
/// assert_eq!("10002".parse(), Ok(Switch::On("localhost:10002".parse().unwrap())));
/// assert!("on".parse::<Switch>().unwrap_err().to_string().contains("IP:PORT"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Do not listen.
    Off,
    /// Listen at this address.
    On(ListenAddress),
}

/// The text is neither an address nor `off`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a listen address: write IP:PORT, a PORT on this machine only, or off")]
pub struct InvalidSwitch(String);

impl FromStr for Switch {
    type Err = InvalidSwitch;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        text.parse().map(Self::On).map_err(|_| InvalidSwitch(text.to_owned()))
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::On(address) => address.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
