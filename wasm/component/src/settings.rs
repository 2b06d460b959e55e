//! Settings from environment variables.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `IFMATCH_REGISTER` | URL of a folder for the records on an ifmatch gateway, or `instance`: the memory of each instance of this component | none: a conditional write gets 503 |
//! | `IFMATCH_REGISTER_TOKEN` | the gateway's token | |
//! | `IFMATCH_AUTHORITATIVE` | `true`: resources change only through this component, so no conditional write needs a GET before it | `false` |
//! | `IFMATCH_REQUIRE_CONDITIONS` | `true`: PUT, PATCH and DELETE without a condition get 428 | `false` |
//! | `IFMATCH_PATHS` | prefixes of paths, separated by commas and compared in normal form; other requests pass untouched | all |
//! | `IFMATCH_IGNORE_CASE` | `true`: paths that differ only in case are one resource | `false` |
//! | `IFMATCH_IGNORE_TRAILING_SLASH` | `true`: a path with a trailing slash and the same path without it are one resource | `false` |
//! | `IFMATCH_HASH_LIMIT` | bytes of a response that are read for its tag; longer ones have one only with a register's URL | 1048576 |
//! | `IFMATCH_MAX_STALENESS` | seconds for which a 304 may rely on the last answer of the register | 0 |
//! | `IFMATCH_WRITE_TIMEOUT` | seconds that a write may take | 30 |

use std::time::Duration;

use ifmatch::key::PathKey;
use ifmatch_core::policy::RequirePreconditions;
use ifmatch_http_register::Address;

/// Maximum of `IFMATCH_MAX_STALENESS` and of `IFMATCH_WRITE_TIMEOUT`, in seconds.
const LONGEST: u64 = 3_600;
/// Maximum of `IFMATCH_HASH_LIMIT`: a share of the memory that a component can have.
const LARGEST: u64 = 256 << 20;

/// All settings.
#[derive(Clone, Debug)]
pub struct ComponentSettings {
    /// Where the records are.
    pub records: Records,
    /// `true` if resources change only through this component.
    pub authoritative: bool,
    /// The methods that need a condition.
    pub required: RequirePreconditions,
    /// Prefixes of the paths. Empty: all paths.
    pub paths: Vec<String>,
    /// Decides which paths are one resource, for the records and for the prefixes.
    pub key: PathKey,
    /// Bytes of a response that are read for its tag. `None`: the layer's default, 1 MiB.
    pub hash_limit: Option<u64>,
    /// Time for which a 304 may rely on the last answer of the register.
    pub max_staleness: Duration,
    /// Time that a write may take. `None`: the layer's default, 30 seconds.
    pub write_timeout: Option<Duration>,
}

/// Where the records are.
#[derive(Clone, Debug)]
pub enum Records {
    /// Nowhere that other instances see. Conditional writes are refused.
    None,
    /// In the memory of this instance, by explicit choice.
    Instance,
    /// On an HTTP server.
    Remote(Address),
}

/// A setting is invalid. The message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnusableSettings(String);

impl ComponentSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`UnusableSettings`] names the variable, and shows no secret.
    ///
    /// ```
    /// use ifmatch_component::settings::ComponentSettings;
    ///
    /// let error = ComponentSettings::read(|name| (name == "IFMATCH_HASH_LIMIT").then(|| "1 MiB".into())).unwrap_err();
    /// assert!(error.to_string().starts_with("IFMATCH_HASH_LIMIT"));
    /// ```
    pub fn read(set: impl Fn(&str) -> Option<String>) -> Result<Self, UnusableSettings> {
        let set = |name: &str| {
            set(name)
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let flag = |name: &str| match set(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(UnusableSettings(format!("{name} must be true or false"))),
        };
        let number = |name: &str, unit: &str, least: u64, most: u64| {
            let wrong = || {
                UnusableSettings(format!(
                    "{name} must be a number of {unit} from {least} to {most}"
                ))
            };
            let parse = |text: String| {
                text.parse()
                    .ok()
                    .filter(|number| (least..=most).contains(number))
            };
            set(name)
                .map(|text| parse(text).ok_or_else(wrong))
                .transpose()
        };
        let records = records(
            set("IFMATCH_REGISTER").as_deref(),
            set("IFMATCH_REGISTER_TOKEN").as_deref(),
        )?;
        let authoritative = flag("IFMATCH_AUTHORITATIVE")?;
        if authoritative && !matches!(records, Records::Remote(_)) {
            let what = "IFMATCH_AUTHORITATIVE needs the URL of a register in IFMATCH_REGISTER, which all instances share";
            return Err(UnusableSettings(what.to_owned()));
        }
        let mut key = PathKey::new();
        if flag("IFMATCH_IGNORE_CASE")? {
            key = key.ignoring_case();
        }
        if flag("IFMATCH_IGNORE_TRAILING_SLASH")? {
            key = key.ignoring_trailing_slash();
        }
        let required = flag("IFMATCH_REQUIRE_CONDITIONS")?;
        let seconds = |name, least| {
            number(name, "seconds", least, LONGEST).map(|set| set.map(Duration::from_secs))
        };
        Ok(Self {
            records,
            authoritative,
            required: if required {
                RequirePreconditions::for_writes()
            } else {
                RequirePreconditions::none()
            },
            paths: paths(set("IFMATCH_PATHS").as_deref())?,
            key,
            hash_limit: number("IFMATCH_HASH_LIMIT", "bytes", 0, LARGEST)?,
            max_staleness: seconds("IFMATCH_MAX_STALENESS", 0)?.unwrap_or_default(),
            write_timeout: seconds("IFMATCH_WRITE_TIMEOUT", 1)?,
        })
    }

    /// Returns `true` if the requests for a path are conditional.
    pub fn covers(&self, path: &str) -> bool {
        self.paths.is_empty()
            || self
                .paths
                .iter()
                .any(|prefix| self.key.is_below(path, prefix))
    }
}

fn records(register: Option<&str>, token: Option<&str>) -> Result<Records, UnusableSettings> {
    let records = match register {
        None => Records::None,
        Some("instance") => Records::Instance,
        Some(url) => {
            let address: Address = url.parse().map_err(|error| {
                UnusableSettings(format!(
                    "IFMATCH_REGISTER must be the URL of a folder on an ifmatch gateway, or `instance`: {error}"
                ))
            })?;
            let address = token.map_or(Ok(address.clone()), |token| address.with_token(token));
            Records::Remote(
                address.map_err(|error| {
                    UnusableSettings(format!("IFMATCH_REGISTER_TOKEN: {error}"))
                })?,
            )
        }
    };
    match (&records, token) {
        (Records::None | Records::Instance, Some(_)) => Err(UnusableSettings(
            "IFMATCH_REGISTER_TOKEN needs the URL of a register in IFMATCH_REGISTER".to_owned(),
        )),
        _ => Ok(records),
    }
}

fn paths(text: Option<&str>) -> Result<Vec<String>, UnusableSettings> {
    let prefixes = text.into_iter().flat_map(|text| text.split(','));
    prefixes
        .map(str::trim)
        .map(|prefix| {
            let wrong = || {
                UnusableSettings(format!(
                    "IFMATCH_PATHS: `{prefix}` doesn't begin with a slash"
                ))
            };
            if prefix.starts_with('/') {
                Ok(prefix.to_owned())
            } else {
                Err(wrong())
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<ComponentSettings, String> {
        let get = |name: &str| {
            set.iter()
                .find(|(its, _)| *its == name)
                .map(|(_, value)| (*value).to_owned())
        };
        ComponentSettings::read(get).map_err(|error| error.to_string())
    }

    #[test]
    fn without_settings_nothing_is_promised_that_instances_would_have_to_share() {
        let settings = read(&[]).expect("defaults");
        assert!(matches!(settings.records, Records::None));
        assert!(
            settings.covers("/") && !settings.authoritative && settings.max_staleness.is_zero()
        );
        assert!(matches!(
            read(&[("IFMATCH_REGISTER", " instance ")])
                .expect("valid")
                .records,
            Records::Instance
        ));
    }

    #[test]
    fn only_the_paths_that_are_named_are_covered() {
        let settings = read(&[("IFMATCH_PATHS", "/notes/, /docs")]).expect("valid");
        assert!(settings.covers("/notes/7") && settings.covers("/docs"));
        assert!(!settings.covers("/notes") && !settings.covers("/"));
        // An encoded path must not bypass the guard.
        assert!(
            settings.covers("/n%6ftes/7")
                && settings.covers("/notes%2F7")
                && !settings.covers("/n%6ft")
        );
        let encoded = read(&[("IFMATCH_PATHS", "/caf%C3%A9")]).expect("valid");
        assert!(encoded.covers("/caf%c3%a9/menu") && !encoded.covers("/cafe"));
    }

    #[test]
    fn one_normal_form_decides_about_the_record_and_about_the_prefix() {
        let normal =
            |set: &[(&str, &str)], path: &str| read(set).expect("valid").key.normal_path(path);
        let paths = ("IFMATCH_PATHS", "/notes/");
        assert_eq!(normal(&[], "/notes/a%2Fb"), "/notes/a/b");
        assert_ne!(normal(&[], "/Notes/a"), normal(&[], "/notes/a"));
        assert_ne!(normal(&[], "/notes/a/"), normal(&[], "/notes/a"));
        let (case, slash) = (
            ("IFMATCH_IGNORE_CASE", "true"),
            ("IFMATCH_IGNORE_TRAILING_SLASH", "true"),
        );
        assert_eq!(normal(&[case], "/Notes/%41"), "/notes/a");
        assert_eq!(normal(&[slash], "/notes/a%2F"), "/notes/a");
        for (set, covered, other) in [
            (&[paths][..], "/notes/A", "/NOTES/a"),
            (&[paths, case], "/NOTES/a", "/notes"),
            (&[paths, slash], "/notes", "/Notes"),
            (&[paths, slash, case], "/NOTES", "/note"),
        ] {
            let settings = read(set).expect("valid");
            assert!(
                settings.covers(covered) && !settings.covers(other),
                "{set:?}"
            );
        }
    }

    #[test]
    fn errors_name_the_setting_and_show_no_secret() {
        for (name, value, says) in [
            ("IFMATCH_REGISTER", "redis://host", "http://host"),
            (
                "IFMATCH_REGISTER",
                "http://user:hunter2@host/records",
                "isn't part of the URL",
            ),
            ("IFMATCH_REGISTER_TOKEN", "hunter2", "needs the URL"),
            ("IFMATCH_AUTHORITATIVE", "true", "needs the URL"),
            ("IFMATCH_AUTHORITATIVE", "yes", "true or false"),
            ("IFMATCH_REQUIRE_CONDITIONS", "1", "true or false"),
            ("IFMATCH_IGNORE_CASE", "1", "true or false"),
            ("IFMATCH_IGNORE_TRAILING_SLASH", "yes", "true or false"),
            ("IFMATCH_PATHS", "notes", "slash"),
            ("IFMATCH_PATHS", "/notes,", "slash"),
            ("IFMATCH_HASH_LIMIT", "1MiB", "bytes from 0"),
            ("IFMATCH_MAX_STALENESS", "3601", "seconds from 0 to 3600"),
            ("IFMATCH_WRITE_TIMEOUT", "0", "seconds from 1 to 3600"),
        ] {
            let error = read(&[(name, value)]).expect_err(name);
            let shown = error.contains(name) && error.contains(says);
            assert!(
                shown && !error.contains("hunter2"),
                "{name}={value}: {error}"
            );
        }
        let wrong = [
            ("IFMATCH_REGISTER", "http://h/records"),
            ("IFMATCH_REGISTER_TOKEN", "hunter2\nx"),
        ];
        let error = read(&wrong).expect_err("no header field has it");
        assert!(
            error.starts_with("IFMATCH_REGISTER_TOKEN") && !error.contains("hunter2"),
            "{error}"
        );
    }
}
