//! Storage accounts: the names and keys that requests of the Azure dialect are signed with.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit};
use sha2::Sha256;
use thiserror::Error;

/// The account that every Azure SDK knows: `UseDevelopmentStorage=true` stands for it.
pub const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
/// The published key of that account, a constant in the source of every Azure SDK: it keeps nobody out.
pub const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The accounts that a service knows. The first is the *default* one, whose containers the plain dialect shows under their
/// own names. Cheap to clone; empty by default, so that every request of the Azure dialect is refused.
///
/// ```
/// use crate::accounts::{Account, Accounts};
///
/// let accounts = Accounts::new([Account::new("photos", "c2VjcmV0")?, Account::new("reports", "c2VjcmV0")?])?;
/// let photos = accounts.get("photos").unwrap();
/// assert!(accounts.is_default(photos));
/// assert!(accounts.get("unknown").is_none());
/// # Ok::<(), crate::accounts::InvalidAccount>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Accounts(Arc<[Account]>);

impl Accounts {
    /// These accounts, the default one first.
    ///
    /// # Errors
    /// Two of them have one name.
    pub fn new(accounts: impl IntoIterator<Item = Account>) -> Result<Self, InvalidAccount> {
        let accounts: Arc<[Account]> = accounts.into_iter().collect();
        let repeated = |at: usize| accounts[..at].iter().any(|other| other.name == accounts[at].name);
        if (0..accounts.len()).any(repeated) { Err(InvalidAccount(Rule::Repeated)) } else { Ok(Self(accounts)) }
    }

    /// The development account alone. Everybody knows its key: use it on loopback only.
    ///
    /// ```
    /// use crate::accounts::{Accounts, DEVELOPMENT_ACCOUNT};
    /// assert!(Accounts::development().get(DEVELOPMENT_ACCOUNT).is_some());
    /// ```
    pub fn development() -> Self {
        Self(Account::new(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY).into_iter().collect())
    }

    /// The account of this name.
    pub fn get(&self, name: &str) -> Option<&Account> {
        self.0.iter().find(|account| account.name() == name)
    }

    /// Whether this is the default account.
    pub fn is_default(&self, account: &Account) -> bool {
        self.0.first().is_some_and(|first| first.name == account.name)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, the default one first.
    pub fn iter(&self) -> impl Iterator<Item = &Account> {
        self.0.iter()
    }
}

/// An account: its name, and the keys that sign requests to it.
///
/// There are two keys at most, so that one can be replaced while the other is in use. Cheap to clone.
///
/// ```
/// use crate::accounts::Account;
///
/// let account = Account::new("photos", "c2VjcmV0")?.and_key("YW5vdGhlcg==")?;
/// assert_eq!(account.name(), "photos");
/// assert!(Account::new("Photos", "c2VjcmV0").is_err());
/// assert!(Account::new("photos", "no base64!").is_err());
/// assert_eq!("photos:c2VjcmV0".parse::<Account>()?.name(), "photos");
/// # Ok::<(), crate::accounts::InvalidAccount>(())
/// ```
#[derive(Clone)]
pub struct Account {
    name: Arc<str>,
    keys: Arc<[Hmac<Sha256>]>,
}

impl Account {
    /// The most keys.
    pub const MAX_KEYS: usize = 2;

    /// An account with one key, which is base64.
    ///
    /// # Errors
    /// [`InvalidAccount`] says what is wrong.
    pub fn new(name: &str, key: &str) -> Result<Self, InvalidAccount> {
        let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if !(3..=24).contains(&name.len()) || !name.bytes().all(valid) {
            return Err(InvalidAccount(Rule::Name));
        }
        Self { name: name.into(), keys: Arc::default() }.and_key(key)
    }

    /// The same account with one more key.
    ///
    /// # Errors
    /// The key is no base64, or empty, or there are [two](Self::MAX_KEYS) already.
    pub fn and_key(mut self, key: &str) -> Result<Self, InvalidAccount> {
        let key = STANDARD.decode(key.trim()).map_err(|_| InvalidAccount(Rule::Key))?;
        if key.is_empty() {
            return Err(InvalidAccount(Rule::Key));
        }
        if self.keys.len() == Self::MAX_KEYS {
            return Err(InvalidAccount(Rule::Keys));
        }
        let key = Hmac::new_from_slice(&key).map_err(|_| InvalidAccount(Rule::Key))?;
        self.keys = self.keys.iter().cloned().chain([key]).collect();
        Ok(self)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The keys, each ready to sign something with.
    pub(crate) fn keys(&self) -> &[Hmac<Sha256>] {
        &self.keys
    }
}

/// `NAME:KEY` or `NAME:KEY:KEY2`.
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

/// The name alone: keys belong into no log.
impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The accounts cannot be used as they were given; the message says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidAccount(Rule);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum Rule {
    #[error("an account's name has 3 to 24 characters, all of them a-z or 0-9")]
    Name,
    #[error("an account's key is base64, such as `openssl rand -base64 64` writes it")]
    Key,
    #[error("an account is written NAME:KEY or NAME:KEY:KEY2, the keys in base64")]
    Text,
    #[error("an account has at most {} keys", Account::MAX_KEYS)]
    Keys,
    #[error("two accounts have one name: give each its own")]
    Repeated,
}
