//! The settings in a URL.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_register::{ConnectError, ConnectErrorKind};
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, TargetSessionAttrs};
use tokio_postgres::{Config, NoTls};

use crate::connection::{PostgresConnector, Tls, TlsConnector};
use crate::{passwords, platform, tls};

/// Time limit of a connection to one address.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// The parameters of connections.
pub(crate) struct ConnectionSettings {
    pub(crate) config: Config,
    pub(crate) connector: Arc<dyn PostgresConnector>,
}

impl ConnectionSettings {
    /// Takes the settings of a service, with its own TLS.
    pub(crate) fn of_service(mut config: Config, tls: impl Tls) -> Result<Self, ConnectError> {
        if config.get_hosts().len() > 1 {
            let text = "the settings name several hosts, of which a former primary may be one: connect by a URL, which finds \
                        the latest";
            return Err(ConnectError::new(ConnectErrorKind::Unsuitable, text));
        }
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        Ok(Self {
            config,
            connector: Arc::new(TlsConnector(tls)),
        })
    }

    /// Parses a URL. No error contains text of the URL, which may be a part of a password.
    pub(crate) fn parse(url: &str) -> Result<Self, ConnectError> {
        let wrong = || {
            ConnectError::new(
                ConnectErrorKind::Url,
                "not a PostgreSQL URL. Use postgres://USER@HOST[:PORT]/DATABASE, and percent-encode special characters",
            )
        };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(wrong());
        }
        let (plain, mode, roots) = without_tls_options(url)?;
        let mut config: Config = plain.parse().map_err(|error| wrong().because(error))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(wrong());
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        if config.get_application_name().is_none() {
            config.application_name("ifmatch");
        }
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        // A former primary that runs again must not hide the present one.
        config.load_balance_hosts(LoadBalanceHosts::Random);
        if config.get_password().is_none()
            && let Some(password) = passwords::find(&config)?
        {
            config.password(password);
        }
        let encrypts = mode.unwrap_or_else(|| !is_local(&config));
        config.ssl_mode(if encrypts {
            SslMode::Require
        } else {
            SslMode::Disable
        });
        let connector = if encrypts {
            tls::connector(roots)?
        } else {
            Arc::new(TlsConnector(NoTls))
        };
        Ok(Self { config, connector })
    }
}

/// Returns a URL for each host of a URL.
pub(crate) fn each_host(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Vec::new();
    };
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    hosts
        .split(',')
        .map(|host| format!("{scheme}://{user}{host}{tail}"))
        .collect()
}

/// Removes `sslmode` and `sslrootcert`, which the client library doesn't know as libpq does. Returns the rest of the URL, if the
/// connection is encrypted, and the file of the authorities.
fn without_tls_options(url: &str) -> Result<(String, Option<bool>, Option<PathBuf>), ConnectError> {
    let Some((place, query)) = url.rsplit_once('?') else {
        return Ok((url.to_owned(), None, None));
    };
    let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
    for option in query.split('&') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = percent_encoding::percent_decode_str(value).decode_utf8_lossy();
        match (name, &*value) {
            ("sslmode", "disable") => mode = Some(false),
            ("sslmode", "require" | "verify-ca" | "verify-full") => mode = Some(true),
            ("sslmode", _) => {
                let text = "sslmode is disable, or one of require, verify-ca and verify-full, which all verify the \
                            certificate and the host name";
                return Err(ConnectError::new(ConnectErrorKind::Url, text));
            }
            ("sslrootcert", "system") => roots = None,
            ("sslrootcert", file) => roots = Some(PathBuf::from(file)),
            _ => rest.push(option),
        }
    }
    let url = if rest.is_empty() {
        place.to_owned()
    } else {
        format!("{place}?{}", rest.join("&"))
    };
    Ok((url, mode, roots))
}

/// Returns `true` if no host is on a network.
fn is_local(config: &Config) -> bool {
    let is_local = |host: &Host| {
        // Otherwise, the host is a Unix socket.
        let Some(name) = platform::name(host) else {
            return true;
        };
        name == "localhost"
            || name
                .parse()
                .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    };
    config.get_hosts().iter().all(is_local)
        && config
            .get_hostaddrs()
            .iter()
            .all(std::net::IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> ConnectionSettings {
        ConnectionSettings::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn networks_are_encrypted_unless_stated_otherwise() {
        for (url, encrypts) in [
            ("postgres://u@localhost/d", false),
            ("postgres://u@127.0.0.1:5433/d?connect_timeout=3", false),
            ("postgres://u@%2Fvar%2Frun/d", false),
            ("postgres://u@h1,h2/d", true),
            ("postgres://u@localhost,h2/d", true),
            ("postgres://u@localhost/d?sslmode=verify-full", true),
            ("postgres://u@h1/d?sslmode=disable&connect_timeout=3", false),
        ] {
            let settings = parse(url);
            let mode = if encrypts {
                SslMode::Require
            } else {
                SslMode::Disable
            };
            assert_eq!(settings.config.get_ssl_mode(), mode, "{url}");
        }
        assert_eq!(
            parse("postgres://u@h/d?connect_timeout=7")
                .config
                .get_connect_timeout(),
            Some(&Duration::from_secs(7))
        );
    }

    #[test]
    fn each_host_has_a_url() {
        assert_eq!(
            each_host("postgres://u:p@h1:1,h2/d?sslmode=disable"),
            [
                "postgres://u:p@h1:1/d?sslmode=disable",
                "postgres://u:p@h2/d?sslmode=disable"
            ]
        );
        assert_eq!(
            each_host("postgres://h1,h2?user=u@e"),
            ["postgres://h1?user=u@e", "postgres://h2?user=u@e"]
        );
        assert_eq!(each_host("postgres://%2Frun/d"), ["postgres://%2Frun/d"]);
    }

    #[test]
    fn wrong_urls_are_refused_without_their_passwords() {
        for url in [
            "mysql://u:secret@h/d",
            "postgres:",
            "postgres://u:secret@h:port/d",
            "postgres://u:secret@h/d?sslmode=prefer",
            "postgres://u:secret@h/d?sslrootcert=/missing/secret.pem",
            "postgres://u:secret@h/d?unknown=1",
        ] {
            let Err(error) = ConnectionSettings::parse(url) else {
                panic!("{url}")
            };
            assert_eq!(error.kind(), ConnectErrorKind::Url, "{url}");
            let text = error.to_string();
            assert!(
                !text.contains("u:secret") && !text.contains("secret@"),
                "{text}"
            );
        }
    }
}
