//! Who may do what: the bearer tokens, as they are set.

use std::path::Path;

pub use ifmatch_blob::accounts::access::{Access, Denied};

use crate::error::Error;
use crate::settings::Settings;

/// Access by the tokens in `settings` and in the files it names.
///
/// # Errors
/// A file cannot be read or holds no token, or a token is malformed.
pub(crate) fn from_settings(settings: &Settings) -> Result<Access, Error> {
    let mut read = settings.read_token.clone();
    let mut write = settings.write_token.clone();
    if let Some(path) = &settings.read_token_file {
        read.extend(read_tokens(path)?);
    }
    if let Some(path) = &settings.write_token_file {
        write.extend(read_tokens(path)?);
    }
    Access::new(&read, &write).map_err(|error| Error::usage(error.to_string()))
}

fn read_tokens(path: &Path) -> Result<Vec<String>, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::usage(format!("cannot read the token file {}: {error}", path.display())))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let tokens: Vec<String> = lines.map(str::to_owned).collect();
    if tokens.is_empty() {
        return Err(Error::usage(format!("the token file {} holds no token: write one a line", path.display())));
    }
    Ok(tokens)
}
