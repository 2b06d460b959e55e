//! Differences between systems: sockets as hosts, and the place of the password file.

pub(crate) use imp::{name, password_file, shown};

#[cfg(unix)]
mod imp {
    use std::env;
    use std::path::PathBuf;

    use tokio_postgres::config::Host;

    /// Returns the name of a host on a network, or `None` for a Unix socket.
    pub(crate) fn name(host: &Host) -> Option<&str> {
        match host {
            Host::Tcp(name) => Some(name),
            Host::Unix(_) => None,
        }
    }

    /// Describes a host.
    pub(crate) fn shown(host: &Host, port: u16) -> String {
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => path.display().to_string(),
        }
    }

    /// Returns the file that libpq reads if `PGPASSFILE` isn't set.
    pub(crate) fn password_file() -> Option<PathBuf> {
        Some(PathBuf::from(env::var_os("HOME")?).join(".pgpass"))
    }
}

#[cfg(not(unix))]
mod imp {
    use std::env;
    use std::path::PathBuf;

    use tokio_postgres::config::Host;

    /// Returns the name of a host. All of them are on a network.
    pub(crate) fn name(Host::Tcp(name): &Host) -> Option<&str> {
        Some(name)
    }

    /// Describes a host.
    pub(crate) fn shown(Host::Tcp(name): &Host, port: u16) -> String {
        format!("{name}:{port}")
    }

    /// Returns the file that libpq reads on Windows if `PGPASSFILE` isn't set.
    pub(crate) fn password_file() -> Option<PathBuf> {
        Some(
            PathBuf::from(env::var_os("APPDATA")?)
                .join("postgresql")
                .join("pgpass.conf"),
        )
    }
}
