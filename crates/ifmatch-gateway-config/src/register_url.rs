//! The URL of a register.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::shown_url::without_secrets;
use crate::error::Error;

/// The URL of a register, which may contain a password. Shown without user and query.
///
/// ```
/// use ifmatch_gateway_config::register_url::{Engine, RegisterUrl};
///
/// let url: RegisterUrl = "redb:///var/lib/ifmatch/register.redb".parse().unwrap();
/// assert_eq!(*url.engine(), Engine::Redb("/var/lib/ifmatch/register.redb".into()));
/// assert!("mysql://host/database".parse::<RegisterUrl>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RegisterUrl {
    text: String,
    engine: Engine,
}

/// The engine of a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The memory of this process.
    Memory,
    /// A file for one process.
    Redb(PathBuf),
    /// A database.
    Database(Database),
    /// An object store with conditional writes.
    Objects,
}

/// An engine in a server of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// PostgreSQL.
    Postgres,
    /// Redis or Valkey.
    Redis,
    /// etcd.
    Etcd,
}

/// The schemes of all engines, for messages.
const FORMS: &str = "postgres://USER@HOST/DATABASE, redis://HOST, rediss://HOST, etcd://HOST[,HOST…], \
     etcds://HOST[,HOST…], s3://BUCKET/PREFIX, az://CONTAINER/PREFIX, gs://BUCKET/PREFIX, redb:///FILE or memory:";

impl RegisterUrl {
    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the whole URL, with the password if it has one.
    pub fn with_password(&self) -> &str {
        &self.text
    }
}

impl FromStr for RegisterUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || {
            Error::usage(format!(
                "{} is not the URL of a register. Use {FORMS}.",
                without_secrets(text)
            ))
        };
        let (scheme, rest) = text.split_once(':').ok_or_else(unknown)?;
        let engine = match scheme {
            "memory" if rest.is_empty() => Engine::Memory,
            "redb" => match rest.strip_prefix("//") {
                Some(path) if path.starts_with('/') && !path.ends_with('/') => {
                    Engine::Redb(path.into())
                }
                _ => return Err(unknown()),
            },
            "postgres" | "postgresql" if rest.starts_with("//") => {
                Engine::Database(Database::Postgres)
            }
            "redis" | "rediss" if rest.starts_with("//") => Engine::Database(Database::Redis),
            "etcd" | "etcds" if rest.starts_with("//") => Engine::Database(Database::Etcd),
            "s3" | "az" | "gs" if rest.starts_with("//") => Engine::Objects,
            _ => return Err(unknown()),
        };
        Ok(Self {
            text: text.to_owned(),
            engine,
        })
    }
}

impl fmt::Display for RegisterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(&self.text))
    }
}

impl fmt::Debug for RegisterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegisterUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_registers_are_accepted() {
        let postgres = Engine::Database(Database::Postgres);
        let redis = Engine::Database(Database::Redis);
        let etcd = Engine::Database(Database::Etcd);
        for (url, engine) in [
            ("memory:", Engine::Memory),
            ("redb:///folder/file", Engine::Redb("/folder/file".into())),
            ("postgres://u@h1,h2/d", postgres.clone()),
            ("postgresql://h/d", postgres),
            ("redis://h", redis.clone()),
            ("rediss://h", redis),
            ("etcd://h1,h2", etcd.clone()),
            ("etcds://h", etcd),
            ("s3://bucket/prefix", Engine::Objects),
            ("az://container", Engine::Objects),
            ("gs://bucket", Engine::Objects),
        ] {
            assert_eq!(url.parse::<RegisterUrl>().unwrap().engine, engine, "{url}");
        }
        for wrong in [
            "",
            "file:///folder",
            "memory",
            "memory:x",
            "redb:",
            "redb://file",
            "redb:///folder/",
            "postgres:h",
            "s3:bucket",
            "mysql://h/d",
            "/file",
        ] {
            let error = wrong.parse::<RegisterUrl>().unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(FORMS), "{error}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let url: RegisterUrl = "postgres://user:se/c@ret@h1:1,h2:2/d?password=other"
            .parse()
            .unwrap();
        assert_eq!(
            format!("{url} {url:?}"),
            "postgres://(hidden) RegisterUrl(postgres://(hidden))"
        );
        let error = "mysql://user:secret@host"
            .parse::<RegisterUrl>()
            .unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
