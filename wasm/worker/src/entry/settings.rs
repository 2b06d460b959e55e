//! Settings from variables and secrets, with the gateway's names.

use std::time::Duration;

use http::Method;
use ifmatch_blob::access::Access;
use ifmatch_blob::accounts::{Account, Accounts, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use ifmatch_blob::cors::Cors;
use ifmatch_core::policy::RequirePreconditions;

use crate::tasks::subrequests;

/// Service of a Worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Blobs, in both dialects.
    #[default]
    Blobs,
    /// Tables.
    Tables,
}

/// Maximum of `IFMATCH_MAX_STALENESS`.
const LONGEST: Duration = Duration::from_hours(1);

/// Minimum of `IFMATCH_MAX_REQUESTS`.
const FEWEST: usize = 50;

/// All settings.
#[derive(Clone, Debug)]
pub(crate) struct WorkerSettings {
    /// `IFMATCH_SERVES`: `blobs` or `tables`.
    pub(crate) serves: Serves,
    /// `IFMATCH_ACCOUNTS`: `NAME:KEY[:KEY2]`, separated by commas.
    pub(crate) accounts: Accounts,
    /// `IFMATCH_READ_TOKEN` and `IFMATCH_WRITE_TOKEN`: tokens separated by commas. `IFMATCH_PUBLIC_READ`: `true` to allow
    /// reads without one.
    pub(crate) access: Access,
    /// `IFMATCH_CORS_ORIGIN`: origins of web pages that may use the plain dialect, separated by commas.
    pub(crate) cors: Option<Cors>,
    /// `IFMATCH_REQUIRE_CONDITIONS`: `true` to reject writes without a condition.
    pub(crate) required: RequirePreconditions,
    /// `IFMATCH_MAX_BODY_SIZE`: in bytes.
    pub(crate) max_body: Option<u64>,
    /// `IFMATCH_MAX_STALENESS`: maximum age of cached metadata served without revalidation, in seconds.
    pub(crate) max_staleness: Duration,
    /// `IFMATCH_MAX_REQUESTS`: maximum number of requests to R2 and objects for one request.
    pub(crate) max_requests: usize,
    /// `IFMATCH_PREFIX`: prefix of the objects' names.
    pub(crate) prefix: String,
    /// `IFMATCH_LEASES`: `on`, or `off` to use no Durable Objects.
    pub(crate) leases: bool,
}

/// A setting is invalid or missing. The message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnusableSettings(String);

impl WorkerSettings {
    /// Reads the settings. Without credentials the Worker is unusable, unless `IFMATCH_DEVELOPMENT` limits it to this machine.
    pub(crate) fn read(set: impl Fn(&str) -> Option<String>) -> Result<Self, UnusableSettings> {
        let set = |name: &str| set(name).filter(|value| !value.trim().is_empty());
        let flag = |name| flag(name, set(name).as_deref());
        let accounts = list(set("IFMATCH_ACCOUNTS").as_deref())
            .iter()
            .map(|text| account(text))
            .collect::<Result<Vec<_>, _>>()?;
        let (read, write) = (
            list(set("IFMATCH_READ_TOKEN").as_deref()),
            list(set("IFMATCH_WRITE_TOKEN").as_deref()),
        );
        let is_closed = !accounts.is_empty() || !read.is_empty() || !write.is_empty();
        let development = flag("IFMATCH_DEVELOPMENT")?;
        if !is_closed && !development {
            return Err(UnusableSettings(
                "this Worker rejects all requests: set IFMATCH_WRITE_TOKEN or IFMATCH_ACCOUNTS with `wrangler secret put`, \
                 or IFMATCH_DEVELOPMENT = \"true\" where only you can reach it"
                    .to_owned(),
            ));
        }
        let accounts = if is_closed {
            Accounts::new(accounts)
                .map_err(|error| UnusableSettings(format!("IFMATCH_ACCOUNTS: {error}")))?
        } else {
            Accounts::development()
        };
        let public_read = flag("IFMATCH_PUBLIC_READ")?;
        let access = Access::new(&read, &write)
            .map_err(|error| UnusableSettings(error.to_string()))?
            .public_read(public_read);
        let cors = Cors::new(&list(set("IFMATCH_CORS_ORIGIN").as_deref()));
        let (serves, leases) = (
            serves(set("IFMATCH_SERVES").as_deref())?,
            leases(set("IFMATCH_LEASES").as_deref())?,
        );
        if serves == Serves::Tables && !leases {
            return Err(UnusableSettings(
                "tables need Durable Objects: remove IFMATCH_LEASES, or serve blobs".to_owned(),
            ));
        }
        Ok(Self {
            serves,
            leases,
            accounts,
            access: if is_closed {
                access.never_open()
            } else {
                access
            },
            cors: cors
                .map_err(|error| UnusableSettings(format!("IFMATCH_CORS_ORIGIN: {error}")))?,
            required: required(flag("IFMATCH_REQUIRE_CONDITIONS")?),
            max_body: set("IFMATCH_MAX_BODY_SIZE")
                .map(|text| size(&text))
                .transpose()?,
            max_staleness: set("IFMATCH_MAX_STALENESS")
                .map_or(Ok(Duration::ZERO), |text| seconds(&text))?,
            max_requests: set("IFMATCH_MAX_REQUESTS")
                .map_or(Ok(subrequests::DEFAULT), |text| requests(&text))?,
            prefix: set("IFMATCH_PREFIX").unwrap_or_default(),
        })
    }
}

fn list(text: Option<&str>) -> Vec<String> {
    text.unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(ToOwned::to_owned)
        .collect()
}

/// Parses an account. The error message contains no key.
fn account(text: &str) -> Result<Account, UnusableSettings> {
    let account: Account = text
        .parse()
        .map_err(|error| UnusableSettings(format!("IFMATCH_ACCOUNTS: {error}")))?;
    let is_published = text
        .split(':')
        .skip(1)
        .any(|key| key.trim() == DEVELOPMENT_KEY);
    if is_published {
        return Err(UnusableSettings(format!(
            "IFMATCH_ACCOUNTS: the key of {DEVELOPMENT_ACCOUNT} is public: give the account its own key \
             (openssl rand -base64 48)"
        )));
    }
    Ok(account)
}

fn flag(name: &str, text: Option<&str>) -> Result<bool, UnusableSettings> {
    match text.map(str::trim) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(UnusableSettings(format!("{name} must be true or false"))),
    }
}

fn serves(text: Option<&str>) -> Result<Serves, UnusableSettings> {
    match text.map(str::trim) {
        None | Some("blobs") => Ok(Serves::Blobs),
        Some("tables") => Ok(Serves::Tables),
        Some(_) => Err(UnusableSettings(
            "IFMATCH_SERVES must be blobs or tables".to_owned(),
        )),
    }
}

fn leases(text: Option<&str>) -> Result<bool, UnusableSettings> {
    match text.map(str::trim) {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(_) => Err(UnusableSettings(
            "IFMATCH_LEASES must be on or off".to_owned(),
        )),
    }
}

fn size(text: &str) -> Result<u64, UnusableSettings> {
    text.trim()
        .parse()
        .map_err(|_| UnusableSettings("IFMATCH_MAX_BODY_SIZE must be a number of bytes".to_owned()))
}

fn seconds(text: &str) -> Result<Duration, UnusableSettings> {
    let wrong = || {
        UnusableSettings(format!(
            "IFMATCH_MAX_STALENESS must be a number of seconds up to {}",
            LONGEST.as_secs()
        ))
    };
    let seconds = text
        .trim()
        .parse()
        .map(Duration::from_secs)
        .map_err(|_| wrong())?;
    if seconds <= LONGEST {
        Ok(seconds)
    } else {
        Err(wrong())
    }
}

fn requests(text: &str) -> Result<usize, UnusableSettings> {
    let number = text.trim().parse().ok().filter(|number| *number >= FEWEST);
    number.ok_or_else(|| {
        UnusableSettings(format!(
            "IFMATCH_MAX_REQUESTS must be a number of at least {FEWEST}"
        ))
    })
}

fn required(by_all: bool) -> RequirePreconditions {
    if by_all {
        RequirePreconditions::for_methods([Method::PUT, Method::DELETE])
    } else {
        RequirePreconditions::none()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<WorkerSettings, String> {
        let get = |name: &str| {
            set.iter()
                .find(|(its, _)| *its == name)
                .map(|(_, value)| (*value).to_owned())
        };
        WorkerSettings::read(get).map_err(|error| error.to_string())
    }

    #[test]
    fn without_credentials_all_requests_are_rejected() {
        for set in [
            &[][..],
            &[("IFMATCH_DEVELOPMENT", "false")],
            &[("IFMATCH_WRITE_TOKEN", " , ")],
        ] {
            let error = read(set).unwrap_err();
            assert!(error.contains("wrangler secret put"), "{error}");
        }
    }

    #[test]
    fn development_is_open_unless_there_are_credentials() {
        let open = read(&[("IFMATCH_DEVELOPMENT", "true")]).unwrap();
        assert!(open.access.is_open() && open.accounts.get(DEVELOPMENT_ACCOUNT).is_some());
        for (name, value) in [
            ("IFMATCH_WRITE_TOKEN", "w"),
            ("IFMATCH_ACCOUNTS", "one:c2VjcmV0"),
        ] {
            let closed = read(&[("IFMATCH_DEVELOPMENT", "true"), (name, value)]).unwrap();
            assert!(
                !closed.access.is_open() && closed.accounts.get(DEVELOPMENT_ACCOUNT).is_none(),
                "{name}"
            );
        }
    }

    #[test]
    fn nothing_is_stale_unless_it_may_be() {
        let bound = |set| {
            read(&[("IFMATCH_DEVELOPMENT", "true"), set])
                .unwrap()
                .max_staleness
        };
        for set in [
            ("IFMATCH_READ_TOKEN", "r"),
            ("IFMATCH_MAX_STALENESS", "0"),
            ("IFMATCH_MAX_STALENESS", " "),
        ] {
            assert_eq!(bound(set), Duration::ZERO);
        }
        assert_eq!(
            bound(("IFMATCH_MAX_STALENESS", "30")),
            Duration::from_secs(30)
        );
    }

    #[test]
    fn tables_need_leases() {
        let set = [("IFMATCH_READ_TOKEN", "r"), ("IFMATCH_LEASES", "off")];
        assert!(!read(&set).unwrap().leases);
        assert!(
            read(&[set[0], set[1], ("IFMATCH_SERVES", "tables")])
                .unwrap_err()
                .contains("remove IFMATCH_LEASES")
        );
    }

    #[test]
    fn accounts_are_separated_by_commas() {
        let settings = read(&[(
            "IFMATCH_ACCOUNTS",
            "one:c2VjcmV0, two:c2VjcmV0:YW5vdGhlcg==",
        )])
        .unwrap();
        assert!(
            settings
                .accounts
                .is_default(settings.accounts.get("one").unwrap())
        );
        assert!(settings.accounts.get("two").is_some());
    }

    #[test]
    fn errors_name_the_setting_and_show_no_secret() {
        let published = format!("one:c2VjcmV0:{DEVELOPMENT_KEY}");
        for (name, value, says) in [
            ("IFMATCH_ACCOUNTS", "hunter2", "NAME:KEY"),
            ("IFMATCH_ACCOUNTS", "one:hunter2!", "base64"),
            ("IFMATCH_ACCOUNTS", "one:c2VjcmV0,one:c2VjcmV0", "same name"),
            ("IFMATCH_ACCOUNTS", &published, "is public"),
            ("IFMATCH_WRITE_TOKEN", "hunter2 hunter2", "token"),
            ("IFMATCH_SERVES", "queues", "blobs or tables"),
            ("IFMATCH_LEASES", "false", "on or off"),
            ("IFMATCH_MAX_BODY_SIZE", "1MiB", "bytes"),
            ("IFMATCH_MAX_STALENESS", "-1", "up to 3600"),
            ("IFMATCH_MAX_STALENESS", "3601", "up to 3600"),
            ("IFMATCH_MAX_REQUESTS", "49", "at least 50"),
            ("IFMATCH_MAX_REQUESTS", "many", "at least 50"),
            (
                "IFMATCH_REQUIRE_CONDITIONS",
                "yes",
                "IFMATCH_REQUIRE_CONDITIONS",
            ),
            ("IFMATCH_PUBLIC_READ", "yes", "IFMATCH_PUBLIC_READ"),
            (
                "IFMATCH_CORS_ORIGIN",
                "https://app.example/",
                "without a path",
            ),
        ] {
            let error = read(&[("IFMATCH_READ_TOKEN", "r"), (name, value)]).unwrap_err();
            assert!(
                error.contains(says) && !error.contains("hunter2"),
                "{name}={value}: {error}"
            );
        }
    }
}
