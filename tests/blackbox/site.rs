//! The server's addresses and credentials, and unique names.

use std::env::var;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use support::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Signer};

use crate::http::Http;

/// The address of a service.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// The value of `Host`.
    pub(crate) authority: String,
}

/// The server under test.
pub(crate) struct Site {
    /// The name in `differences.txt`.
    pub(crate) server: String,
    pub(crate) signer: Signer,
    account: String,
    blobs: Endpoint,
    tables: Option<Endpoint>,
    token: Option<String>,
    run: u64,
    names: AtomicU32,
}

impl Endpoint {
    /// Parses a URL `http://host:port`.
    pub(crate) fn of(url: &str) -> Self {
        let authority = url.trim_end_matches('/').strip_prefix("http://");
        let authority = authority.unwrap_or_else(|| panic!("{url}: a URL is http://host:port"));
        let mut addresses = authority.to_socket_addrs().unwrap_or_else(|error| panic!("{url}: {error}"));
        Self { address: addresses.next().expect("an address"), authority: authority.to_owned() }
    }
}

impl Site {
    pub(crate) fn new(server: String, blobs: Endpoint, tables: Option<Endpoint>) -> Self {
        let account = var("IFMATCH_ACCOUNT").unwrap_or_else(|_| format!("{DEVELOPMENT_ACCOUNT}:{DEVELOPMENT_KEY}"));
        let (name, key) = account.split_once(':').expect("IFMATCH_ACCOUNT is name:key");
        let signer = Signer::new(name, key);
        let (token, run) = (var("IFMATCH_TOKEN").ok(), RandomState::new().build_hasher().finish());
        let account = name.to_owned();
        Self { server, signer, account, blobs, tables, token, run, names: AtomicU32::new(0) }
    }

    /// Returns a client of the plain dialect.
    pub(crate) fn plain(&self) -> Http<'_> {
        Http::plain(&self.blobs, self.token.as_deref())
    }

    /// Returns a client of Azure's dialect.
    pub(crate) fn azure(&self) -> Http<'_> {
        Http::azure(&self.blobs, &self.signer)
    }

    /// Returns a client of the table service.
    #[track_caller]
    pub(crate) fn tables(&self) -> Http<'_> {
        let tables = self.tables.as_ref().expect("there are no tables: set IFMATCH_TABLES_URL");
        Http::tables(tables, &self.signer)
    }

    /// Returns the address of the blob service.
    pub(crate) fn address(&self) -> SocketAddr {
        self.blobs.address
    }

    /// Returns the URL of a path below the account, as the source of a copy.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{}{path}", self.blobs.authority, self.account)
    }

    /// Returns the URL of a path in the plain dialect.
    pub(crate) fn plain_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.blobs.authority)
    }

    /// Returns the token, if there is one.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Returns a header line with the token, if there is one.
    pub(crate) fn token_line(&self) -> String {
        self.token().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default()
    }

    /// Returns a name for a container or table that is not used elsewhere.
    pub(crate) fn name(&self) -> String {
        format!("b{:016x}n{}", self.run, self.names.fetch_add(1, Ordering::Relaxed))
    }
}

/// Polls until there is a result. The time limit is far longer than necessary, so only a missing result fails.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("never: {what}");
}
