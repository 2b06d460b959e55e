//! The settings of a server with their sources: flags and variables above the file, and the file above the defaults.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches};
use serde::{Deserialize, Serialize};
use toml::Value;

use super::config_error;
use super::settings::Settings;
use super::shown_url::{HIDDEN, without_secrets};
use crate::error::{Error, Subject};
use crate::text::Text;

/// Flags and variables, and the text of the file, which is empty without a file.
pub struct Sources<'a> {
    given: &'a ArgMatches,
    /// The path of the file.
    name: String,
    text: String,
}

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// Its flag.
    pub name: String,
    /// Its value, unless that is secret.
    pub value: Text,
    /// `flag`, `environment`, `file` or `default`.
    pub source: Text,
    /// A hash of its whole value.
    #[serde(skip)]
    hash: u64,
}

/// The settings that a reload exchanges. It refuses other addresses and accounts, and names all other settings that differ.
const EXCHANGED: [&str; 21] = [
    "--tls-cert",
    "--tls-key",
    "--read-token",
    "--write-token",
    "--read-token-file",
    "--write-token-file",
    "--public-read",
    "--upstream",
    "--route",
    "--balance",
    "--rewrite-host",
    "--connect-timeout",
    "--upstream-requests",
    "--breaker-failures",
    "--breaker-pause",
    "--upstream-ca",
    "--upstream-client-cert",
    "--upstream-client-key",
    "--upstream-http2",
    "--health-path",
    "--health-interval",
];

impl<'a> Sources<'a> {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// Fails if the file can't be read.
    pub fn read(given: &'a ArgMatches, file: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = file else {
            return Ok(Self {
                given,
                name: String::new(),
                text: String::new(),
            });
        };
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| {
            Error::usage(format!(
                "can't read --config {name}: {error}. Check the path and its permissions."
            ))
        })?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Error::usage(format!(
                "--config {name} isn't UTF-8 text. Convert it to UTF-8."
            ))
        })?;
        Ok(Self { given, name, text })
    }

    /// Returns the settings of `ifmatch serve`.
    ///
    /// # Errors
    /// Names the line of the file that can't be parsed.
    pub fn of_serve(&self) -> Result<Settings, Error> {
        let mut settings = Settings::from_toml(&self.text)
            .map_err(|error| Error::usage(format!("{}: {error}", self.name)))?;
        settings
            .update_from_arg_matches(self.given)
            .map_err(|error| Error::usage(error.to_string()))?;
        Ok(settings)
    }

    /// Returns the settings of `ifmatch proxy`.
    ///
    /// # Errors
    /// Names the line of the file that can't be parsed.
    pub fn of_proxy(&self) -> Result<Settings, Error> {
        let mut settings = self.of_serve()?;
        settings
            .proxy
            .update_from_arg_matches(self.given)
            .map_err(|error| Error::usage(error.to_string()))?;
        Ok(settings)
    }

    /// Returns the settings of a command that are in force.
    pub fn in_force(&self, command: &Command) -> Vec<InForce> {
        let file: toml::Table = toml::from_str(&self.text).unwrap_or_default();
        let in_file = |key: &str| file.get(key).or_else(|| file.get("proxy")?.get(key));
        let of = |arg: &clap::Arg| {
            let key = arg.get_long()?;
            let default = || {
                Some(
                    arg.get_default_values()
                        .first()?
                        .to_string_lossy()
                        .into_owned(),
                )
            };
            let (value, shown, source) = if let Some(source) = self.given(arg.get_id().as_str()) {
                let texts = self
                    .given
                    .get_raw(arg.get_id().as_str())?
                    .map(|value| value.to_string_lossy());
                let (values, shown): (Vec<_>, Vec<_>) = texts
                    .map(|value| (value.to_string(), without_secrets(&value)))
                    .unzip();
                (values.join(", "), shown.join(", "), source)
            } else if let Some(value) = in_file(key) {
                (format!("{value:?}"), shown(value), "file")
            } else {
                (default()?, default()?, "default")
            };
            let shown = if arg.is_hide_env_values_set() {
                HIDDEN.to_owned()
            } else {
                shown
            };
            Some(InForce {
                name: format!("--{key}"),
                value: Text(shown),
                source: source.into(),
                hash: hash(&value),
            })
        };
        command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set())
            .filter_map(of)
            .collect()
    }

    /// Adds the line of the first setting that an error is about and that comes from the file.
    pub fn locate(&self, error: Error) -> Error {
        let line_of = |subject: &Subject| match subject {
            Subject::Flag(flag) => {
                let key = flag.trim_start_matches('-');
                let is_given = self.given(&key.replace('-', "_")).is_some();
                line_of(&self.text, key).filter(|_| !is_given)
            }
            Subject::Route(pattern) => route_line(&self.text, pattern),
        };
        match error.subjects.iter().find_map(line_of) {
            Some(line) => Error::usage(format!("{}: line {line}: {error}", self.name)),
            None => error,
        }
    }

    /// Returns the source of a setting that is given by a flag or a variable.
    fn given(&self, id: &str) -> Option<&'static str> {
        let id = self.given.ids().find(|given| *given == id)?;
        match self.given.value_source(id.as_str())? {
            ValueSource::CommandLine => Some("flag"),
            ValueSource::EnvVariable => Some("environment"),
            _ => None,
        }
    }
}

/// Returns the flags of the settings that differ from those at the start, and that a reload doesn't exchange.
pub fn not_reloaded(started: &[InForce], now: &[InForce]) -> Vec<String> {
    let of = |settings: &[InForce], name: &str| {
        settings
            .iter()
            .find(|setting| setting.name == name)
            .map(|setting| setting.hash)
    };
    let gone = started
        .iter()
        .filter(|setting| of(now, &setting.name).is_none());
    let differs = now
        .iter()
        .filter(|setting| of(started, &setting.name) != Some(setting.hash));
    let names = differs.chain(gone).map(|setting| setting.name.clone());
    names
        .filter(|name| !EXCHANGED.contains(&name.as_str()))
        .collect()
}

/// Hashes a value, to compare it with one of the same process.
fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns a value of the file as text without secrets.
fn shown(value: &Value) -> String {
    match public(value) {
        Value::String(text) => text,
        value => serde_json::to_string(&value).unwrap_or_default(),
    }
}

/// Returns a value without secrets: without a URL's password, and without header fields, which may have credentials.
fn public(value: &Value) -> Value {
    let is_secret = |key: &str| config_error::SECRETS.contains(&key);
    match value {
        Value::String(text) => Value::String(without_secrets(text)),
        Value::Array(values) => Value::Array(values.iter().map(public).collect()),
        Value::Table(fields) => {
            let field = |(key, value): (&String, &Value)| {
                (
                    key.clone(),
                    if is_secret(key) {
                        Value::String(HIDDEN.to_owned())
                    } else {
                        public(value)
                    },
                )
            };
            Value::Table(fields.iter().map(field).collect())
        }
        value => value.clone(),
    }
}

/// Returns the number of the line that sets a key.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let sets = |line: &str| {
        line.split_once('=')
            .is_some_and(|(name, _)| name.trim() == key)
    };
    text.lines().position(sets).map(|before| before + 1)
}

/// Returns the number of the last line that gives a route this pattern.
fn route_line(text: &str, pattern: &str) -> Option<usize> {
    let quoted = ['"', '\''].map(|quote| format!("{quote}{pattern}{quote}"));
    let names = |line: &str| quoted.iter().any(|quoted| line.contains(quoted));
    let matches = |line: &str| line.trim().strip_prefix("match").is_some_and(names);
    text.lines()
        .collect::<Vec<_>>()
        .iter()
        .rposition(|line| matches(line))
        .map(|before| before + 1)
}

#[cfg(test)]
mod tests {
    use super::super::arguments;
    use super::*;

    /// Flags of a server, and the text of a file.
    fn with<T>(
        server: fn(Command) -> Command,
        flags: &[&str],
        text: &str,
        read: impl FnOnce(&Sources<'_>) -> T,
    ) -> T {
        let command = arguments::in_texts(server(Command::new("server")).no_binary_name(true));
        let given = command.get_matches_from(flags);
        read(&Sources {
            given: &given,
            name: "a.toml".to_owned(),
            text: text.to_owned(),
        })
    }

    fn in_force(server: fn(Command) -> Command, flags: &[&str], text: &str) -> Vec<InForce> {
        with(server, flags, text, |sources| {
            sources.in_force(&server(Command::new("server")))
        })
    }

    #[test]
    fn flags_override_the_file_and_the_file_overrides_the_defaults() {
        let text = "max-waits = 2\nmax-requests = 70\npublic-read = true\n[proxy]\nbreaker-failures = 1\nsort-query = true";
        let flags = [
            "--max-waits",
            "4",
            "--public-read=false",
            "--breaker-failures",
            "2",
        ];
        let settings = with(arguments::proxy, &flags, text, |sources| {
            sources.of_proxy().unwrap()
        });
        assert_eq!(
            (
                settings.max_waits,
                settings.max_requests,
                settings.max_connections
            ),
            (Some(4), 70, 1_000)
        );
        assert_eq!(
            (settings.proxy.breaker_failures, settings.proxy.sort_query),
            (2, true)
        );
        assert!(!settings.public_read && settings.proxy.guess_lifetimes);
    }

    #[test]
    fn settings_have_a_source_and_secrets_no_value() {
        let flags = [
            "--data",
            "/d",
            "--write-token",
            "secret-secret",
            "--store",
            "s3://u:secret@h/x",
        ];
        let file =
            "max-waits = 2\nmax-requests = 7\naccounts = [{ name = 'a', key = 'c2VjcmV0' }]\n";
        let listed = in_force(arguments::serve, &flags, file);
        let of = |name: &str| {
            listed
                .iter()
                .find(|setting| setting.name == name)
                .map(|setting| (&*setting.value.0, &*setting.source.0))
        };
        for (name, expected) in [
            ("--data", Some(("/d", "flag"))),
            ("--max-waits", Some(("2", "file"))),
            ("--max-requests", Some(("7", "file"))),
            ("--max-connections", Some(("1000", "default"))),
            ("--store", Some(("s3://(hidden)@h/x", "flag"))),
            ("--write-token", Some(("(hidden)", "flag"))),
            ("--accounts", Some(("(hidden)", "file"))),
            ("--tls-cert", None),
        ] {
            assert_eq!(of(name), expected, "{name}");
        }
    }

    #[test]
    fn a_proxy_shows_no_secrets_of_its_peers_and_routes() {
        let flags = ["--purge-peer", "http://a/?key=secret,http://me:secret@b"];
        let file = "[[proxy.route]]\nmatch = '/a'\nupstream = ['http://c']\n\
             request-headers = { set = { authorization = 'secret' }, remove = ['x'] }\n";
        let listed = in_force(arguments::proxy, &flags, file);
        let of = |name: &str| {
            listed
                .iter()
                .find(|setting| setting.name == name)
                .map(|setting| &*setting.value.0)
        };
        assert_eq!(
            of("--purge-peer"),
            Some("http://a/?(hidden), http://(hidden)@b/")
        );
        let route = r#"[{"match":"/a","request-headers":"(hidden)","upstream":["http://c"]}]"#;
        assert_eq!(of("--route"), Some(route));
    }

    #[test]
    fn a_reload_names_each_setting_that_it_does_not_exchange() {
        let started = in_force(
            arguments::proxy,
            &["--upstream", "http://a"],
            "log = 'info'\nregister = 'redis://a:1@h'",
        );
        let now = in_force(
            arguments::proxy,
            &["--cache", "0"],
            "max-waits = 2\nregister = 'redis://a:2@h'",
        );
        let mut named = not_reloaded(&started, &now);
        named.sort();
        assert_eq!(named, ["--cache", "--log", "--register"]);
        assert!(not_reloaded(&started, &started).is_empty());
        let known = arguments::proxy(Command::new("proxy"));
        for name in EXCHANGED {
            assert!(
                known
                    .get_arguments()
                    .any(|arg| arg.get_long() == name.strip_prefix("--")),
                "{name}"
            );
        }
    }

    #[test]
    fn an_error_has_the_line_of_the_setting_that_it_names() {
        let text = "max-waits = 2\n[proxy]\nbalance='x'\n  upstream = []\n\
                    [[proxy.route]]\nmatch = '/a'\n[[proxy.route]]\nmatch = \"/a\"\n[[proxy.route]]\nmatch = '/a/b'\nlisten = 1\n";
        let route = |pattern: &str| {
            Error::usage("--route: a rule")
                .about_route(pattern)
                .about("--route")
        };
        for (error, expected) in [
            (
                Error::usage("no upstream").about("--upstream"),
                "a.toml: line 4: no upstream",
            ),
            (
                Error::setting("--max-waits", "is 0"),
                "a.toml: line 1: --max-waits is 0",
            ),
            (
                Error::setting("--max-waits-x", "is 0, unlike --balance").about("--balance"),
                "a.toml: line 3: ",
            ),
            (Error::usage("--balance is unknown"), "--balance is unknown"),
            (Error::setting("--listen", "is 0"), "--listen is 0"),
            (route("/a"), "a.toml: line 8: --route: a rule"),
            (route("/c"), "--route: a rule"),
        ] {
            let located = with(arguments::proxy, &["--listen", "1"], text, |file| {
                file.locate(error)
            });
            assert!(located.to_string().starts_with(expected), "{located}");
        }
    }
}
