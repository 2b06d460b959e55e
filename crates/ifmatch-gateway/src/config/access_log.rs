//! Parsing of the destination of the access log.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// Destination of the access log: `true`, `false`, `-`, or a file.
///
/// ```
/// use ifmatch_gateway::config::access_log::AccessLog;
///
/// assert_eq!("-".parse(), Ok(AccessLog::Stdout));
/// assert_eq!("/var/log/ifmatch.log".parse(), Ok(AccessLog::File("/var/log/ifmatch.log".into())));
/// assert!("".parse::<AccessLog>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Requests are not logged.
    Off,
    /// Lines of the log on stderr.
    Log,
    /// Lines on stdout.
    Stdout,
    /// Lines at the end of a file.
    File(PathBuf),
}

/// Error returned for an empty destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write true, false, - for stdout, or the path of a file")]
pub struct InvalidAccessLog;

impl From<bool> for AccessLog {
    fn from(is_on: bool) -> Self {
        if is_on { Self::Log } else { Self::Off }
    }
}

impl FromStr for AccessLog {
    type Err = InvalidAccessLog;

    fn from_str(text: &str) -> Result<Self, InvalidAccessLog> {
        match text {
            "" => Err(InvalidAccessLog),
            "-" => Ok(Self::Stdout),
            text => Ok(text.parse::<bool>().map_or_else(|_| Self::File(text.into()), Self::from)),
        }
    }
}

impl<'de> Deserialize<'de> for AccessLog {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Destination;

        impl Visitor<'_> for Destination {
            type Value = AccessLog;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, \"-\" for stdout, or the path of a file")
            }

            fn visit_bool<E: de::Error>(self, is_on: bool) -> Result<AccessLog, E> {
                Ok(is_on.into())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AccessLog, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Destination)
    }
}
