//! Accounts for Azure SDKs, and checks of their keys.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use ifmatch_blob::accounts::{Account, Accounts, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use serde::Deserialize;

use crate::address::Exposure;
use crate::error::Error;

/// An account setting: `NAME:KEY` or `NAME:KEY:KEY2` as a flag, or a table in the file.
///
/// Its `Debug` output omits the keys.
///
/// ```
/// use ifmatch_gateway_config::access::accounts::AccountSetting;
///
/// let account: AccountSetting = "backup:c2VjcmV0".parse().unwrap();
/// assert_eq!((account.name.as_str(), account.key2), ("backup", None));
/// ```
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountSetting {
    /// Name, the first segment of its URLs.
    pub name: String,
    /// Key in base64. Optional for the development account only.
    #[serde(default)]
    pub key: Option<String>,
    /// Second key in base64, for key rotation.
    #[serde(default)]
    pub key2: Option<String>,
}

/// Never fails, so no error message shows a key. The parts are validated on use.
impl FromStr for AccountSetting {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let mut parts = text.splitn(3, ':').map(str::to_owned);
        let name = parts.next().unwrap_or_default();
        Ok(Self {
            name,
            key: parts.next(),
            key2: parts.next(),
        })
    }
}

impl fmt::Debug for AccountSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountSetting")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Returns the accounts for these settings.
///
/// # Errors
/// Fails if a name or a key is invalid, if a name occurs twice, or if other machines could use a published or short
/// key.
pub(crate) fn resolve(set: &[AccountSetting], exposure: Exposure) -> Result<Accounts, Error> {
    if let Exposure::Network(address) = exposure
        && have_published_key(set)
    {
        return Err(Error::usage(format!(
            "the key of {DEVELOPMENT_ACCOUNT} is public, and other machines can reach {address}. Set a secret key (openssl rand \
             -base64 48), or listen on 127.0.0.1."
        )));
    }
    let accounts = set
        .iter()
        .map(AccountSetting::account)
        .collect::<Result<Vec<_>, _>>()?;
    if let Exposure::Network(address) = exposure
        && let Some(account) = set
            .iter()
            .find(|account| account.keys().any(|key| bytes(key) < MIN_BYTES))
    {
        return Err(Error::usage(format!(
            "a key of {} has fewer than {MIN_BYTES} bytes and can be guessed, and other machines can reach \
             {address}. Use a longer one (openssl rand -base64 48), or listen on 127.0.0.1.",
            account.shown()
        )));
    }
    Accounts::new(accounts).map_err(|error| Error::usage(error.to_string()))
}

/// Returns `true` if an account has a secret key.
pub(crate) fn have_secrets(set: &[AccountSetting]) -> bool {
    !set.iter().all(AccountSetting::is_published)
}

/// Returns `true` if an account has the published key.
pub(crate) fn have_published_key(set: &[AccountSetting]) -> bool {
    set.iter().any(AccountSetting::is_published)
}

/// Minimum size of a key in bytes if other machines can try it.
const MIN_BYTES: usize = 16;

/// Length of the longest valid name.
const LONGEST_NAME: usize = 24;

/// Returns the number of bytes encoded by a base64 key.
fn bytes(key: &str) -> usize {
    key.trim().trim_end_matches('=').len() * 3 / 4
}

impl AccountSetting {
    /// Returns `true` if one of the keys is the published one.
    fn is_published(&self) -> bool {
        self.has_published_key() || self.keys().any(|key| key.trim() == DEVELOPMENT_KEY)
    }

    /// Returns `true` if the first key is the published one.
    pub(crate) fn has_published_key(&self) -> bool {
        match &self.key {
            Some(key) => key.trim() == DEVELOPMENT_KEY,
            None => self.name == DEVELOPMENT_ACCOUNT,
        }
    }

    /// Returns the keys that are set.
    fn keys(&self) -> impl Iterator<Item = &str> {
        [self.key.as_deref(), self.key2.as_deref()]
            .into_iter()
            .flatten()
    }

    /// Returns the account's name for a message. A text that is too long for a name, or has other characters, may have a key in it:
    /// someone may have written NAME=KEY.
    fn shown(&self) -> String {
        let may_be_shown =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if self.name.len() <= LONGEST_NAME && self.name.bytes().all(may_be_shown) {
            format!("the account {:?}", self.name)
        } else {
            "an account".to_owned()
        }
    }

    /// Returns the account, whose keys are valid.
    fn account(&self) -> Result<Account, Error> {
        let key = match &self.key {
            Some(key) => key,
            None if self.name == DEVELOPMENT_ACCOUNT => DEVELOPMENT_KEY,
            None => {
                return Err(Error::usage(format!(
                    "{} has no key. Write NAME:KEY with a base64 key (openssl rand -base64 48).",
                    self.shown()
                )));
            }
        };
        let account = Account::new(&self.name, key);
        let account = match &self.key2 {
            Some(key2) => account.and_then(|account| account.and_key(key2)),
            None => account,
        };
        account.map_err(|error| Error::usage(format!("{}: {error}", self.shown())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_shows_a_key_in_the_place_of_a_name() {
        let key = "aHVudGVyMmh1bnRlcjJodW50ZXIy";
        for text in [
            format!("photos={key}"),
            key.to_owned(),
            format!("{key}:{key}"),
            format!("photos={key}:"),
        ] {
            let error = resolve(&set(&[&text]), LOOPBACK)
                .map(drop)
                .unwrap_err()
                .to_string();
            assert!(
                !error.contains(key) && error.starts_with("an account"),
                "{error}"
            );
        }
        let error = resolve(&set(&["Photos:c2VjcmV0"]), LOOPBACK)
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(error.contains("\"Photos\""), "{error}");
    }

    const LOOPBACK: Exposure = Exposure::Loopback;
    /// 16 bytes.
    const LONG: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";

    fn network() -> Exposure {
        Exposure::of(["127.0.0.1:1", "0.0.0.0:2"].map(|address| address.parse().unwrap()))
    }

    fn set(texts: &[&str]) -> Vec<AccountSetting> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_first_account_is_the_default_one() {
        let accounts = resolve(
            &set(&["one:c2VjcmV0", "two:c2VjcmV0:YW5vdGhlcg=="]),
            LOOPBACK,
        )
        .unwrap();
        assert!(accounts.is_default(accounts.get("one").unwrap()));
        assert!(accounts.get("two").is_some());
    }

    #[test]
    fn a_published_key_is_allowed_on_loopback_only() {
        let published = format!("other:{DEVELOPMENT_KEY}");
        for texts in [
            &[DEVELOPMENT_ACCOUNT][..],
            &[&published],
            &["one:c2VjcmV0", DEVELOPMENT_ACCOUNT],
        ] {
            assert!(resolve(&set(texts), LOOPBACK).is_ok(), "{texts:?}");
            let error = resolve(&set(texts), network()).unwrap_err().to_string();
            assert!(
                error.contains("0.0.0.0:2") && error.contains("openssl"),
                "{error}"
            );
        }
        let own = format!("{DEVELOPMENT_ACCOUNT}:{LONG}");
        assert!(resolve(&set(&[&own]), network()).is_ok());
        let second = format!("one:{LONG}:{DEVELOPMENT_KEY}");
        assert!(resolve(&set(&[&second]), network()).is_err());
    }

    #[test]
    fn a_short_key_is_allowed_on_loopback_only() {
        for texts in [
            "one:AA==".to_owned(),
            format!("one:{LONG}:AA=="),
            "one:MDEyMzQ1Njc4OWFiY2Rl".to_owned(),
        ] {
            assert!(resolve(&set(&[&texts]), LOOPBACK).is_ok(), "{texts}");
            let error = resolve(&set(&[&texts]), network()).unwrap_err().to_string();
            assert!(
                error.contains("0.0.0.0:2") && error.contains("openssl") && !error.contains("AA=="),
                "{error}"
            );
        }
        assert!(resolve(&set(&[&format!("one:{LONG}:{LONG}")]), network()).is_ok());
    }

    #[test]
    fn the_development_account_is_no_secret() {
        assert!(!have_secrets(&set(&[DEVELOPMENT_ACCOUNT])));
        let both = set(&["one:c2VjcmV0", DEVELOPMENT_ACCOUNT]);
        assert!(have_secrets(&both) && have_published_key(&both));
        assert!(!have_published_key(&both[..1]));
    }

    #[test]
    fn errors_name_the_account_and_show_no_key() {
        for (texts, expected) in [
            (&["one"][..], "no key"),
            (&["One:c2VjcmV0"], "a-z"),
            (&["one:hunter2!"], "base64"),
            (&["one:c2VjcmV0:hunter2!"], "base64"),
            (&["one:c2VjcmV0:c2VjcmV0:hunter2"], "base64"),
            (&["one:c2VjcmV0", "one:c2VjcmV0"], "same name"),
        ] {
            let error = resolve(&set(texts), LOOPBACK).unwrap_err().to_string();
            assert!(
                error.contains(expected) && !error.contains("hunter2"),
                "{error}"
            );
        }
        assert!(!format!("{:?}", set(&["one:c2VjcmV0"])).contains("c2VjcmV0"));
    }
}
