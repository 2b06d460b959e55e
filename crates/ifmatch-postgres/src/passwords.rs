//! Passwords from `PGPASSWORD` and from a password file.

use std::env;
use std::path::PathBuf;

use tokio_postgres::Config;

use ifmatch_register::{ConnectError, ConnectErrorKind};

use crate::platform;

/// The port of a server, unless the settings name another.
const DEFAULT_PORT: u16 = 5432;

/// Returns the password for a connection, if one is configured.
pub(crate) fn find(config: &Config) -> Result<Option<String>, ConnectError> {
    if let Ok(password) = env::var("PGPASSWORD") {
        return Ok(Some(password));
    }
    let named = env::var_os("PGPASSFILE").map(PathBuf::from);
    let is_named = named.is_some();
    let Some(file) = named.or_else(platform::password_file) else {
        return Ok(None);
    };
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(of_file(&text, config)),
        Err(error) if is_named => {
            let text = format!("the file {} of PGPASSFILE cannot be read", file.display());
            Err(ConnectError::new(ConnectErrorKind::Url, text).because(error))
        }
        Err(_) => Ok(None),
    }
}

/// Returns the password of the first line that matches a host: `host:port:database:user:password`, each but the last
/// possibly `*`, with backslashes before `:` and `\`.
fn of_file(text: &str, config: &Config) -> Option<String> {
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let addresses: Vec<(String, String)> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(at, host)| {
            // A password file names Unix sockets "localhost".
            let host = platform::name(host).unwrap_or("localhost").to_owned();
            (host, port(config, at).to_string())
        })
        .collect();
    let matches = |pattern: &str, value: &str| pattern == "*" || pattern == value;
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let [host, port, name, role, password] = <[String; 5]>::try_from(fields(line)).ok()?;
            let is_host = addresses
                .iter()
                .any(|(own_host, own_port)| matches(&host, own_host) && matches(&port, own_port));
            (is_host && matches(&name, database) && matches(&role, user)).then_some(password)
        })
}

/// Divides a line at its colons, and removes the backslashes.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match (char, fields.last_mut()) {
            (':', _) => fields.push(String::new()),
            ('\\', Some(field)) => field.extend(chars.next()),
            (char, Some(field)) => field.push(char),
            (_, None) => {}
        }
    }
    fields
}

/// Returns the port of the host with this number. Hosts without a port of their own have the first one.
pub(crate) fn port(config: &Config, at: usize) -> u16 {
    let ports = config.get_ports();
    ports
        .get(at)
        .or(ports.first())
        .copied()
        .unwrap_or(DEFAULT_PORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_matches_has_the_password() {
        let file =
            "# a comment\nother:5432:app:me:wrong\ndb:*:app:me:se\\:cr\\\\et\n*:*:*:*:last\n";
        for (url, password) in [
            ("postgres://me@db:7/app", "se:cr\\et"),
            ("postgres://me@a,db/app", "se:cr\\et"),
            ("postgres://you@db/app", "last"),
            ("postgres://me@other/app", "wrong"),
            ("postgres://me@other:7/app", "last"),
        ] {
            assert_eq!(
                of_file(file, &url.parse().unwrap()).as_deref(),
                Some(password),
                "{url}"
            );
        }
        assert_eq!(
            of_file("db:5432:app:me", &"postgres://me@db/app".parse().unwrap()),
            None,
            "incomplete"
        );
    }
}
