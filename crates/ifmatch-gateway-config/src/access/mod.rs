//! Access by bearer tokens.

use std::path::Path;

use http::Request;
use http::header::AUTHORIZATION;
use ifmatch_azure::auth::shared_access;

use crate::address::Exposure;
use crate::error::Error;
use crate::settings::Settings;

pub use ifmatch_blob::access::{Access, Denied};

pub mod accounts;
pub mod host_check;

/// Minimum length of a token if other machines can try it. 16 random hexadecimal digits have 64 bits.
const MIN_LENGTH: usize = 16;

/// Returns access by the tokens in `settings` and in the token files.
///
/// # Errors
/// Fails if a file can't be read or contains no token, if a token is malformed, or if other machines can reach the server
/// and a token is short enough to guess.
pub(crate) fn from_settings(settings: &Settings, exposure: Exposure) -> Result<Access, Error> {
    let mut read = settings.read_token.clone();
    let mut write = settings.write_token.clone();
    if let Some(path) = &settings.read_token_file {
        read.extend(read_tokens("--read-token-file", path)?);
    }
    if let Some(path) = &settings.write_token_file {
        write.extend(read_tokens("--write-token-file", path)?);
    }
    if let Exposure::Network(address) = exposure
        && read
            .iter()
            .chain(&write)
            .any(|token| token.len() < MIN_LENGTH)
    {
        return Err(Error::usage(format!(
            "a token with fewer than {MIN_LENGTH} characters can be guessed, and other machines can reach {address}. Create a \
             longer one with `openssl rand -hex 32`, or listen on 127.0.0.1."
        )));
    }
    let access = Access::new(&read, &write).map_err(|error| Error::usage(error.to_string()))?;
    Ok(access.public_read(settings.public_read))
}

/// Reads the tokens in the file of a flag, at least one.
///
/// # Errors
/// Fails if the file can't be read, contains no token, or contains a malformed one.
pub fn read_tokens(flag: &str, path: &Path) -> Result<Vec<String>, Error> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::usage(format!(
            "can't read {flag} {}: {error}. Check the path and its permissions.",
            path.display()
        ))
        .about(flag)
    })?;
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let tokens: Vec<String> = lines.map(str::to_owned).collect();
    if tokens.is_empty() {
        return Err(Error::setting(
            flag,
            format!("{} contains no token. Write one per line.", path.display()),
        ));
    }
    let checked = Access::new(&tokens, &[]);
    checked.map_err(|error| {
        Error::setting(
            flag,
            format!("{}: {error}. Write one per line.", path.display()),
        )
    })?;
    Ok(tokens)
}

/// The kind of a request's credentials, in metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// No credentials.
    None,
    /// A bearer token.
    Token,
    /// A signature with an Azure account's key (`SharedKey`, `SharedKeyLite`).
    SharedKey,
    /// A shared access signature in the query.
    SharedAccess,
    /// Another `Authorization`.
    Other,
}

impl CredentialKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Token,
        Self::SharedKey,
        Self::SharedAccess,
        Self::Other,
    ];

    /// Returns the kind of a request's credentials. `Authorization` takes precedence over a signature in the query.
    pub fn of<B>(request: &Request<B>) -> Self {
        let Some(line) = request.headers().get(AUTHORIZATION) else {
            return if shared_access::is_in(request.uri().query()) {
                Self::SharedAccess
            } else {
                Self::None
            };
        };
        let scheme = line
            .as_bytes()
            .split(|byte| *byte == b' ')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        match &*scheme {
            b"bearer" => Self::Token,
            b"sharedkey" | b"sharedkeylite" => Self::SharedKey,
            _ => Self::Other,
        }
    }

    /// Returns the kind's name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Token => "token",
            Self::SharedKey => "shared-key",
            Self::SharedAccess => "shared-access",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_token_is_allowed_on_loopback_only() {
        let network = Exposure::of(["0.0.0.0:80".parse().unwrap()]);
        for (lines, is_short) in [
            ("write-token = ['x']", true),
            (
                "read-token = ['fifteen-letters']\nwrite-token = ['0123456789abcdef']",
                true,
            ),
            ("write-token = ['0123456789abcdef']", false),
            ("", false),
        ] {
            let settings = Settings::from_toml(lines).unwrap();
            assert!(
                from_settings(&settings, Exposure::Loopback).is_ok(),
                "{lines}"
            );
            let error = from_settings(&settings, network)
                .err()
                .map(|error| error.to_string());
            assert_eq!(error.is_some(), is_short, "{lines}");
            assert!(
                error.is_none_or(|error| error.contains("0.0.0.0:80") && error.contains("openssl")),
                "{lines}"
            );
        }
    }

    #[test]
    fn a_short_token_in_a_file_is_rejected_as_well() {
        let file = std::env::temp_dir().join(format!("ifmatch-access-{}", std::process::id()));
        std::fs::write(&file, "# comment\nshort\n").unwrap();
        let settings = Settings {
            write_token_file: Some(file.clone()),
            ..Settings::default()
        };
        let error = from_settings(&settings, Exposure::of(["[::]:80".parse().unwrap()])).err();
        std::fs::remove_file(file).unwrap();
        assert!(error.is_some_and(|error| error.to_string().contains("can be guessed")));
    }
}
