//! The configuration file: its settings, and the lines that errors are about.

use std::path::Path;

use toml::Value;

use super::config_error;
use super::settings::Settings;
use super::shown_url::{HIDDEN, without_secrets};
use crate::error::Error;

/// A configuration file, or no file at all.
#[derive(Default)]
pub(crate) struct ConfigFile {
    /// Its settings.
    pub(crate) settings: Settings,
    name: String,
    text: String,
}

impl ConfigFile {
    /// Reads a TOML file, if there is one.
    ///
    /// # Errors
    /// Fails if the file cannot be read or parsed.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(Self::default()) };
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::usage(format!("cannot read the configuration file {name}: {error}")))?;
        let settings = Settings::from_toml(&text).map_err(|error| Error::usage(format!("{name}: {error}")))?;
        Ok(Self { settings, name, text })
    }

    /// Returns the value of a key as text without secrets, also of one in the table of the proxy.
    pub(crate) fn shown_value(&self, key: &str) -> Option<String> {
        let table: toml::Table = toml::from_str(&self.text).ok()?;
        let value = table.get(key).or_else(|| table.get("proxy")?.get(key))?;
        match shown(value) {
            Value::String(text) => Some(text),
            value => serde_json::to_string(&value).ok(),
        }
    }

    /// Returns a file with this text.
    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// Adds the line of the first setting that an error names, if it comes from the file.
    pub(crate) fn locate(&self, error: Error) -> Error {
        let message = error.to_string();
        let flags = message.split(|end: char| !end.is_ascii_alphanumeric() && end != '-');
        let mut keys = flags.filter_map(|word| word.strip_prefix("--")).filter(|key| !is_overridden(key));
        let line = route_line(&self.text, &message).or_else(|| keys.find_map(|key| line_of(&self.text, key)));
        match line {
            Some(line) => Error::usage(format!("{}: line {line}: {message}", self.name)),
            None => error,
        }
    }
}

/// Returns a value without secrets: those of URLs, and all of header fields, which may have credentials.
fn shown(value: &Value) -> Value {
    let is_secret = |key: &str| config_error::SECRETS.contains(&key);
    match value {
        Value::String(text) => Value::String(without_secrets(text)),
        Value::Array(values) => Value::Array(values.iter().map(shown).collect()),
        Value::Table(fields) => {
            let field = |(key, value): (&String, &Value)| {
                (key.clone(), if is_secret(key) { Value::String(HIDDEN.to_owned()) } else { shown(value) })
            };
            Value::Table(fields.iter().map(field).collect())
        }
        value => value.clone(),
    }
}

/// Returns the number of the line that sets a key.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let sets = |line: &str| line.split_once('=').is_some_and(|(name, _)| name.trim() == key);
    text.lines().position(sets).map(|before| before + 1)
}

/// Returns the number of the last line that gives a route what an error about the routes quotes first.
fn route_line(text: &str, message: &str) -> Option<usize> {
    let quoted =
        message.strip_prefix("--route: '").or_else(|| message.strip_prefix("--upstream: '"))?.split('\'').next()?;
    let quoted = ['"', '\''].map(|quote| format!("{quote}{quoted}{quote}"));
    let names = |line: &str| quoted.iter().any(|quoted| line.contains(quoted));
    let matches = |line: &str| line.trim().strip_prefix("match").is_some_and(names);
    text.lines().collect::<Vec<_>>().iter().rposition(|line| matches(line)).map(|before| before + 1)
}

/// Returns `true` if a flag or a variable of this process takes precedence over a key of the file.
fn is_overridden(key: &str) -> bool {
    let is_flag = |arg: &str| {
        arg.strip_prefix("--")
            .and_then(|arg| arg.strip_prefix(key))
            .is_some_and(|rest| matches!(rest.chars().next(), None | Some('=')))
    };
    let variable = format!("IFMATCH_{}", key.replace('-', "_").to_uppercase());
    std::env::args_os().any(|arg| arg.to_str().is_some_and(is_flag)) || std::env::var_os(variable).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_line_of_the_setting_that_it_names() {
        let text = "max-waits = 2\n[proxy]\nbalance='x'\n  upstream = []\n\
                    [[proxy.route]]\nmatch = '/a'\n[[proxy.route]]\nmatch = \"/a\"\n[[proxy.route]]\nmatch = '/a/b'\n"
            .to_owned();
        let file = ConfigFile { text, name: "a.toml".into(), ..ConfigFile::default() };
        for (message, expected) in [
            ("no upstream is set: use --upstream http://a, or --route", "a.toml: line 4: no upstream"),
            ("--max-waits is 0", "a.toml: line 1: --max-waits is 0"),
            ("--max-waits-x is 0, unlike --balance", "a.toml: line 3: "),
            ("--listen is 0", "--listen is 0"),
            ("--route: '/a' has the same host and path as the route '/a'", "a.toml: line 8: --route: '/a'"),
            ("--route: '/c' is not valid", "--route: '/c' is not valid"),
        ] {
            let located = file.locate(Error::usage(message)).to_string();
            assert!(located.starts_with(expected), "{located}");
        }
    }
}
