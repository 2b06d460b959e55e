//! What the cases know of the server: where it is, who they are, and names that nobody else uses.

use std::env::var;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use support::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Signer};

use crate::http::Http;

/// Where a service listens.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// The value of `Host`.
    pub(crate) authority: String,
}

/// The server under test.
pub(crate) struct Site {
    /// What the file of differences calls it.
    pub(crate) server: String,
    pub(crate) signer: Signer,
    blobs: Endpoint,
    tables: Option<Endpoint>,
    token: Option<String>,
    run: u64,
    names: AtomicU32,
}

impl Endpoint {
    /// Of a URL `http://host:port`.
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
        Self { server, signer, blobs, tables, token, run, names: AtomicU32::new(0) }
    }

    /// A client of the plain dialect.
    pub(crate) fn plain(&self) -> Http<'_> {
        Http::plain(&self.blobs, self.token.as_deref())
    }

    /// A client of Azure's dialect.
    pub(crate) fn azure(&self) -> Http<'_> {
        Http::azure(&self.blobs, &self.signer)
    }

    /// A client of the tables.
    #[track_caller]
    pub(crate) fn tables(&self) -> Http<'_> {
        let tables = self.tables.as_ref().expect("there are no tables: set IFMATCH_TABLES_URL");
        Http::tables(tables, &self.signer)
    }

    /// Where blobs are, for what is sent by hand.
    pub(crate) fn address(&self) -> SocketAddr {
        self.blobs.address
    }

    /// A field line with the token, where one is needed.
    pub(crate) fn token_line(&self) -> String {
        self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default()
    }

    /// The name of a container, or of a table, that is used nowhere else.
    pub(crate) fn name(&self) -> String {
        format!("b{:016x}n{}", self.run, self.names.fetch_add(1, Ordering::Relaxed))
    }
}

/// Asks until there is an answer; far longer than it takes, so that only what never comes fails.
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
