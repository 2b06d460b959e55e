//! The address of a cluster.

use std::fmt;
use std::str::FromStr;

use ifmatch_register::{ConnectError, ConnectErrorKind};
use percent_encoding::percent_decode_str;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::error::unusable;

/// Port of a member for clients, unless the URL names another.
pub(crate) const PORT: u16 = 2379;

/// The address of a cluster, with the user and the prefix of the keys.
///
/// ```
/// use ifmatch_etcd::Address;
///
/// let address: Address = "etcd://user:secret@10.0.0.1,10.0.0.2:2379/notes".parse()?;
/// assert!(!format!("{address:?}").contains("secret"));
/// assert!("http://10.0.0.1".parse::<Address>().is_err());
/// # Ok::<(), ifmatch_etcd::ConnectError>(())
/// ```
#[derive(Clone)]
pub struct Address {
    pub(crate) members: Vec<Endpoint>,
    /// The name and the password.
    pub(crate) user: Option<(String, String)>,
    /// The prefix of all keys, which ends with a slash.
    pub(crate) prefix: String,
}

impl Address {
    /// Verifies the members' certificates against `root`, in PEM format, instead of the certificates of the system. Has no
    /// effect on an address of the scheme `etcd`.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Certificate`] if `root` isn't a certificate.
    pub fn with_root_certificate(mut self, root: &[u8]) -> Result<Self, ConnectError> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(root));
        self.members = self
            .members
            .into_iter()
            .map(|member| with_tls(member, &tls))
            .collect::<Result<_, _>>()?;
        Ok(self)
    }
}

impl FromStr for Address {
    type Err = ConnectError;

    fn from_str(url: &str) -> Result<Self, ConnectError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
        let scheme = match scheme {
            "etcd" => "http",
            "etcds" => "https",
            _ => return Err(invalid()),
        };
        if rest.contains(['?', '#']) {
            return Err(invalid());
        }
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(parse_user(user).ok_or_else(invalid)?), hosts),
            None => (None, authority),
        };
        let members = hosts.split(',').map(|host| parse_member(scheme, host));
        let prefix = match prefix.trim_matches('/') {
            "" => "ifmatch",
            prefix => prefix,
        };
        Ok(Self {
            members: members.collect::<Result<_, _>>()?,
            user,
            prefix: format!("{prefix}/"),
        })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<_> = self.members.iter().map(Endpoint::uri).collect();
        f.debug_struct("Address")
            .field("members", &members)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Parses `user:password`.
fn parse_user(user: &str) -> Option<(String, String)> {
    let (name, password) = user.split_once(':')?;
    let decode = |text| Some(percent_decode_str(text).decode_utf8().ok()?.into_owned());
    decode(name).zip(decode(password))
}

/// Parses `host[:port]`.
fn parse_member(scheme: &str, host: &str) -> Result<Endpoint, ConnectError> {
    let port = host.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    let uri = match port {
        Some(Ok(_)) => format!("{scheme}://{host}"),
        _ => format!("{scheme}://{host}:{PORT}"),
    };
    let endpoint = Endpoint::from_shared(uri).map_err(|_| invalid())?;
    match scheme {
        _ if host.is_empty() => Err(invalid()),
        "http" => Ok(endpoint),
        _ => with_tls(endpoint, &ClientTlsConfig::new().with_native_roots()),
    }
}

/// Returns a member whose connections are encrypted.
fn with_tls(member: Endpoint, tls: &ClientTlsConfig) -> Result<Endpoint, ConnectError> {
    member
        .tls_config(tls.clone())
        .map_err(|error| unusable(ConnectErrorKind::Certificate, error))
}

/// The error for a malformed URL.
fn invalid() -> ConnectError {
    let form =
        "use etcd://[user:password@]host[:port][,host[:port]…][/prefix], or etcds:// for TLS";
    unusable(ConnectErrorKind::Url, form)
}
