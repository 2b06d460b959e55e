//! The accounts that Azure SDKs may use, as they are set, and which of them are safe where.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use ifmatch_azure::accounts::{Account, Accounts, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use serde::Deserialize;

use crate::address::ListenAddress;
use crate::error::Error;

/// An account as it is set: `NAME:KEY` or `NAME:KEY:KEY2` as a flag, a table in the file.
///
/// Its debug text holds no key.
///
/// ```
/// use ifmatch_gateway::accounts::AccountSetting;
///
/// let account: AccountSetting = "backup:c2VjcmV0".parse().unwrap();
/// assert_eq!((account.name.as_str(), account.key2), ("backup", None));
/// ```
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountSetting {
    /// Its name, the first segment of its addresses.
    pub name: String,
    /// Its key in base64. Only the development account has one that need not be set.
    #[serde(default)]
    pub key: Option<String>,
    /// A second key, so that clients can change from one to the other.
    #[serde(default)]
    pub key2: Option<String>,
}

/// Never fails, so that no message about the text shows a key. The parts are looked at when they are used.
impl FromStr for AccountSetting {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let mut parts = text.splitn(3, ':').map(str::to_owned);
        let name = parts.next().unwrap_or_default();
        Ok(Self { name, key: parts.next(), key2: parts.next() })
    }
}

impl fmt::Debug for AccountSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountSetting").field("name", &self.name).finish_non_exhaustive()
    }
}

/// From where a gateway can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// From this machine only.
    ThisMachine,
    /// From others too, at this address.
    Others(ListenAddress),
}

impl Reach {
    /// The reach of a gateway that listens there.
    pub(crate) fn of(addresses: impl IntoIterator<Item = ListenAddress>) -> Self {
        let mut addresses = addresses.into_iter();
        addresses.find(|address| !address.is_loopback()).map_or(Self::ThisMachine, Self::Others)
    }
}

/// The accounts that are set.
///
/// # Errors
/// A name or a key is none, a name comes twice, or a key that everybody knows would be valid for other machines.
pub(crate) fn resolve(set: &[AccountSetting], reach: Reach) -> Result<Accounts, Error> {
    if let Reach::Others(address) = reach
        && set.iter().any(AccountSetting::is_published)
    {
        return Err(Error::usage(format!(
            "everybody knows the key of {DEVELOPMENT_ACCOUNT}, and {address} can be reached from other machines: give the \
             account a key of its own (openssl rand -base64 64), or listen on 127.0.0.1 only"
        )));
    }
    let accounts = set.iter().map(AccountSetting::account).collect::<Result<Vec<_>, _>>()?;
    if let Reach::Others(address) = reach
        && let Some(account) = set.iter().find(|account| account.keys().any(|key| bytes(key) < LEAST_BYTES))
    {
        return Err(Error::usage(format!(
            "a key of the account {:?} has less than {LEAST_BYTES} bytes and can be guessed, and {address} can be reached from \
             other machines: give it a longer one (openssl rand -base64 64), or listen on 127.0.0.1 only",
            account.name
        )));
    }
    Accounts::new(accounts).map_err(|error| Error::usage(error.to_string()))
}

/// Whether there is an account whose key not everybody knows.
pub(crate) fn have_secrets(set: &[AccountSetting]) -> bool {
    !set.iter().all(AccountSetting::is_published)
}

/// Minimum number of bytes in a key that others can try.
const LEAST_BYTES: usize = 16;

/// Returns the number of bytes encoded by a base64 key.
fn bytes(key: &str) -> usize {
    key.trim().trim_end_matches('=').len() * 3 / 4
}

impl AccountSetting {
    /// Whether one of its keys is the one that everybody knows.
    fn is_published(&self) -> bool {
        self.has_published_key() || self.keys().any(|key| key.trim() == DEVELOPMENT_KEY)
    }

    /// Returns `true` if the first key is the well-known one.
    pub(crate) fn has_published_key(&self) -> bool {
        match &self.key {
            Some(key) => key.trim() == DEVELOPMENT_KEY,
            None => self.name == DEVELOPMENT_ACCOUNT,
        }
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        [self.key.as_deref(), self.key2.as_deref()].into_iter().flatten()
    }

    fn account(&self) -> Result<Account, Error> {
        let key = match &self.key {
            Some(key) => key,
            None if self.name == DEVELOPMENT_ACCOUNT => DEVELOPMENT_KEY,
            None => {
                return Err(Error::usage(format!(
                    "the account {:?} has no key: write NAME:KEY, the key in base64 (openssl rand -base64 64)",
                    self.name
                )));
            }
        };
        let account = Account::new(&self.name, key);
        let account = match &self.key2 {
            Some(key2) => account.and_then(|account| account.and_key(key2)),
            None => account,
        };
        account.map_err(|error| Error::usage(format!("the account {:?}: {error}", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Reach = Reach::ThisMachine;
    /// 16 bytes.
    const LONG: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";

    fn others() -> Reach {
        Reach::of(["127.0.0.1:1", "0.0.0.0:2"].map(|address| address.parse().unwrap()))
    }

    fn set(texts: &[&str]) -> Vec<AccountSetting> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_first_account_is_the_default_one() {
        let accounts = resolve(&set(&["one:c2VjcmV0", "two:c2VjcmV0:YW5vdGhlcg=="]), HERE).unwrap();
        assert!(accounts.is_default(accounts.get("one").unwrap()));
        assert!(accounts.get("two").is_some());
    }

    #[test]
    fn a_key_that_everybody_knows_is_for_this_machine_only() {
        let published = format!("other:{DEVELOPMENT_KEY}");
        for texts in [&[DEVELOPMENT_ACCOUNT][..], &[&published], &["one:c2VjcmV0", DEVELOPMENT_ACCOUNT]] {
            assert!(resolve(&set(texts), HERE).is_ok(), "{texts:?}");
            let error = resolve(&set(texts), others()).unwrap_err().to_string();
            assert!(error.contains("0.0.0.0:2") && error.contains("openssl"), "{error}");
        }
        let own = format!("{DEVELOPMENT_ACCOUNT}:{LONG}");
        assert!(resolve(&set(&[&own]), others()).is_ok());
        let second = format!("one:{LONG}:{DEVELOPMENT_KEY}");
        assert!(resolve(&set(&[&second]), others()).is_err());
    }

    #[test]
    fn a_key_that_others_can_guess_is_for_this_machine_only() {
        for texts in ["one:AA==".to_owned(), format!("one:{LONG}:AA=="), "one:MDEyMzQ1Njc4OWFiY2Rl".to_owned()] {
            assert!(resolve(&set(&[&texts]), HERE).is_ok(), "{texts}");
            let error = resolve(&set(&[&texts]), others()).unwrap_err().to_string();
            assert!(error.contains("0.0.0.0:2") && error.contains("openssl") && !error.contains("AA=="), "{error}");
        }
        assert!(resolve(&set(&[&format!("one:{LONG}:{LONG}")]), others()).is_ok());
    }

    #[test]
    fn only_accounts_with_a_secret_close_what_needs_none() {
        assert!(!have_secrets(&set(&[DEVELOPMENT_ACCOUNT])));
        assert!(have_secrets(&set(&[DEVELOPMENT_ACCOUNT, "one:c2VjcmV0"])));
    }

    #[test]
    fn what_is_no_account_is_named_and_no_key_is_shown() {
        for (texts, says) in [
            (&["one"][..], "no key"),
            (&["One:c2VjcmV0"], "a-z"),
            (&["one:hunter2!"], "base64"),
            (&["one:c2VjcmV0:hunter2!"], "base64"),
            (&["one:c2VjcmV0:c2VjcmV0:hunter2"], "base64"),
            (&["one:c2VjcmV0", "one:c2VjcmV0"], "one name"),
        ] {
            let error = resolve(&set(texts), HERE).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hunter2"), "{error}");
        }
        assert!(!format!("{:?}", set(&["one:c2VjcmV0"])).contains("c2VjcmV0"));
    }
}
