//! Storage accounts: the names and keys with which clients of Azure and of S3 sign their requests.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use ifmatch_core::shared_key::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use ifmatch_core::shared_key::{InvalidKey, Key};
use thiserror::Error;

use crate::name::ContainerName;

/// The accounts of a service. The first is the *default* account: the plain dialect shows its containers under their
/// own names. Cheap to clone. Empty by default, so every signed request is rejected.
///
/// ```
/// use ifmatch_blob::accounts::{Account, Accounts};
///
/// let accounts = Accounts::new([Account::new("photos", "c2VjcmV0")?, Account::new("reports", "c2VjcmV0")?])?;
/// let photos = accounts.get("photos").unwrap();
/// assert!(accounts.is_default(photos));
/// assert!(accounts.get("unknown").is_none());
/// # Ok::<(), ifmatch_blob::accounts::InvalidAccount>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Accounts(Arc<[Account]>);

impl Accounts {
    /// Creates a set of accounts, the default one first.
    ///
    /// # Errors
    /// Two accounts have the same name.
    pub fn new(accounts: impl IntoIterator<Item = Account>) -> Result<Self, InvalidAccount> {
        let accounts: Arc<[Account]> = accounts.into_iter().collect();
        let repeated = |at: usize| {
            accounts[..at]
                .iter()
                .any(|other| other.name == accounts[at].name)
        };
        if (0..accounts.len()).any(repeated) {
            Err(InvalidAccount(Rule::Repeated))
        } else {
            Ok(Self(accounts))
        }
    }

    /// The development account alone. Its key is public: use it on loopback only.
    pub fn development() -> Self {
        Self(
            Account::new(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)
                .into_iter()
                .collect(),
        )
    }

    /// Returns the account with this name.
    pub fn get(&self, name: &str) -> Option<&Account> {
        self.0.iter().find(|account| account.name() == name)
    }

    /// Returns `true` for the default account.
    pub fn is_default(&self, account: &Account) -> bool {
        self.0
            .first()
            .is_some_and(|first| first.name == account.name)
    }

    /// Returns the container of an account with this name: its own name for the default account, after the account's name and a
    /// dot for any other. Returns `None` for a name that Azure doesn't allow.
    ///
    /// ```
    /// use ifmatch_blob::accounts::{Account, Accounts};
    ///
    /// let accounts = Accounts::new([Account::new("photos", "c2VjcmV0")?, Account::new("reports", "c2VjcmV0")?])?;
    /// let [photos, reports] = ["photos", "reports"].map(|name| accounts.get(name).unwrap());
    /// assert_eq!(accounts.container(photos, "may").unwrap().as_str(), "may");
    /// let may = accounts.container(reports, "may").unwrap();
    /// assert_eq!(may.as_str(), "reports.may");
    /// assert_eq!((accounts.name_of(reports, &may), accounts.name_of(photos, &may)), (Some("may"), None));
    /// assert!(accounts.container(photos, "reports.may").is_none());
    /// # Ok::<(), ifmatch_blob::accounts::InvalidAccount>(())
    /// ```
    pub fn container(&self, account: &Account, name: &str) -> Option<ContainerName> {
        let container =
            is_container_name(name).then(|| format!("{}{name}", self.prefix(account)))?;
        ContainerName::new(&container).ok()
    }

    /// Returns the name by which an account knows a container, if it is one of its own.
    pub fn name_of<'a>(&self, account: &Account, container: &'a ContainerName) -> Option<&'a str> {
        container
            .as_str()
            .strip_prefix(&self.prefix(account))
            .filter(|name| is_container_name(name))
    }

    /// Returns the prefix of an account's containers in the store.
    pub fn prefix(&self, account: &Account) -> String {
        if self.is_default(account) {
            String::new()
        } else {
            format!("{}{SEPARATOR}", account.name())
        }
    }

    /// Returns `true` if there are no accounts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the accounts, the default one first.
    pub fn iter(&self) -> impl Iterator<Item = &Account> {
        self.0.iter()
    }
}

/// Separates the account from the container in the plain dialect. Azure's container names never contain it.
const SEPARATOR: char = '.';

/// Returns `true` for a container name that Azure allows.
fn is_container_name(name: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part.bytes().all(is_lowercase_or_digit);
    (3..=63).contains(&name.len()) && name.split('-').all(part)
}

fn is_lowercase_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// An account: its name and its keys.
///
/// An account has one or two keys, so one can be replaced while the other is in use. Cheap to clone.
///
/// ```
/// use ifmatch_blob::accounts::Account;
///
/// let account = Account::new("photos", "c2VjcmV0")?.and_key("YW5vdGhlcg==")?;
/// assert_eq!(account.name(), "photos");
/// assert!(Account::new("Photos", "c2VjcmV0").is_err());
/// assert!(Account::new("photos", "no base64!").is_err());
/// assert_eq!("photos:c2VjcmV0".parse::<Account>()?.name(), "photos");
/// # Ok::<(), ifmatch_blob::accounts::InvalidAccount>(())
/// ```
#[derive(Clone)]
pub struct Account {
    name: Arc<str>,
    keys: Arc<[Key]>,
    texts: Arc<[Box<str>]>,
}

impl Account {
    /// Maximum number of keys.
    pub const MAX_KEYS: usize = 2;

    /// Creates an account with one key, in base64.
    ///
    /// # Errors
    /// The name or the key is malformed.
    pub fn new(name: &str, key: &str) -> Result<Self, InvalidAccount> {
        if !(3..=24).contains(&name.len()) || !name.bytes().all(is_lowercase_or_digit) {
            return Err(InvalidAccount(Rule::Name));
        }
        Self {
            name: name.into(),
            keys: Arc::default(),
            texts: Arc::default(),
        }
        .and_key(key)
    }

    /// Adds a key.
    ///
    /// # Errors
    /// The key is empty or not base64, or the account already has [two](Self::MAX_KEYS).
    pub fn and_key(mut self, key: &str) -> Result<Self, InvalidAccount> {
        let text = key.trim().into();
        let key = Key::from_base64(key).map_err(|error| InvalidAccount(Rule::Key(error)))?;
        if self.keys.len() == Self::MAX_KEYS {
            return Err(InvalidAccount(Rule::Keys));
        }
        self.keys = self.keys.iter().cloned().chain([key]).collect();
        self.texts = self.texts.iter().cloned().chain([text]).collect();
        Ok(self)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the keys in base64. As such, they are the secret keys of S3 clients.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }

    /// Returns the keys, ready for signing.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }
}

/// Parses `NAME:KEY` or `NAME:KEY:KEY2`.
impl FromStr for Account {
    type Err = InvalidAccount;

    fn from_str(text: &str) -> Result<Self, InvalidAccount> {
        let (name, rest) = text.split_once(':').ok_or(InvalidAccount(Rule::Text))?;
        match rest.split_once(':') {
            Some((first, second)) => Self::new(name, first)?.and_key(second),
            None => Self::new(name, rest),
        }
    }
}

/// Shows the name only: keys don't belong in logs.
impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The accounts aren't valid. The message gives the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidAccount(Rule);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum Rule {
    #[error("an account's name must have 3 to 24 characters from a-z and 0-9")]
    Name,
    #[error("{0}")]
    Key(InvalidKey),
    #[error("an account must have the form NAME:KEY or NAME:KEY:KEY2, with keys in base64")]
    Text,
    #[error("the account has more than {} keys", Account::MAX_KEYS)]
    Keys,
    #[error("two accounts have the same name")]
    Repeated,
}
