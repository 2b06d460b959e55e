//! The server under test: its addresses and credentials, unique names, and a gateway started by the tests.

use std::env::var;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use support::Gateway;
use support::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Signer};
use support::s3::S3;
use tempfile::TempDir;

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
    s3: Option<(Endpoint, S3)>,
    token: Option<String>,
    run: u64,
    names: AtomicU32,
}

impl Endpoint {
    /// Parses a URL `http://host:port`.
    pub(crate) fn of(url: &str) -> Self {
        let authority = url.trim_end_matches('/').strip_prefix("http://");
        let authority = authority.unwrap_or_else(|| panic!("{url}: a URL is http://host:port"));
        let mut addresses = authority
            .to_socket_addrs()
            .unwrap_or_else(|error| panic!("{url}: {error}"));
        Self {
            address: addresses.next().expect("an address"),
            authority: authority.to_owned(),
        }
    }
}

impl Site {
    pub(crate) fn new(
        server: String,
        blobs: Endpoint,
        tables: Option<Endpoint>,
        s3: Option<Endpoint>,
    ) -> Self {
        let account = var("IFMATCH_ACCOUNT")
            .unwrap_or_else(|_| format!("{DEVELOPMENT_ACCOUNT}:{DEVELOPMENT_KEY}"));
        let (name, key) = account
            .split_once(':')
            .expect("IFMATCH_ACCOUNT is name:key");
        let signer = Signer::new(name, key);
        let s3 = s3.map(|endpoint| {
            let client = S3::new(endpoint.address, name, key).at_host(&endpoint.authority);
            (endpoint, client)
        });
        let (token, run) = (
            var("IFMATCH_TOKEN").ok(),
            RandomState::new().build_hasher().finish(),
        );
        let account = name.to_owned();
        Self {
            server,
            signer,
            account,
            blobs,
            tables,
            s3,
            token,
            run,
            names: AtomicU32::new(0),
        }
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
        let tables = self
            .tables
            .as_ref()
            .expect("there are no tables: set IFMATCH_TABLES_URL");
        Http::tables(tables, &self.signer)
    }

    /// Returns a client of S3's dialect.
    #[track_caller]
    pub(crate) fn s3(&self) -> Http<'_> {
        let (endpoint, client) = self
            .s3
            .as_ref()
            .expect("there is no S3: set IFMATCH_S3_URL");
        Http::s3(endpoint, client.signer())
    }

    /// Returns an asynchronous client of S3's dialect.
    #[track_caller]
    pub(crate) fn s3_client(&self) -> S3 {
        let (_, client) = self
            .s3
            .as_ref()
            .expect("there is no S3: set IFMATCH_S3_URL");
        client.clone()
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
        self.token()
            .map(|token| format!("Authorization: Bearer {token}\r\n"))
            .unwrap_or_default()
    }

    /// Returns a name for a container or table that isn't used elsewhere.
    pub(crate) fn name(&self) -> String {
        format!(
            "b{:016x}n{}",
            self.run,
            self.names.fetch_add(1, Ordering::Relaxed)
        )
    }
}

/// The server under test; stops with this value if it was started here.
pub(crate) struct Server {
    site: Arc<Site>,
    started: Option<(Gateway, TempDir)>,
}

impl Server {
    /// Returns the server that the environment describes, or a gateway on each store that needs nothing else. (A bucket needs a
    /// shared register.)
    pub(crate) fn of_environment() -> Vec<Self> {
        let name = var("IFMATCH_SERVER").ok();
        let Ok(url) = var("IFMATCH_URL") else {
            let names = name.map_or_else(
                || ["folder", "memory", "file"].map(str::to_owned).to_vec(),
                |name| vec![name],
            );
            return names.into_iter().map(Self::start).collect();
        };
        let other = |name| var(name).ok().as_deref().map(Endpoint::of);
        let name = name.unwrap_or_else(|| "folder".to_owned());
        let site = Site::new(
            name,
            Endpoint::of(&url),
            other("IFMATCH_TABLES_URL"),
            other("IFMATCH_S3_URL"),
        );
        vec![Self {
            site: Arc::new(site),
            started: None,
        }]
    }

    /// Returns the address and credentials.
    pub(crate) fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// Stops the server if it was started here, and returns its log.
    pub(crate) fn stop(self) -> String {
        self.started
            .map(|(mut gateway, _folder)| gateway.stop().stderr)
            .unwrap_or_default()
    }

    fn start(name: String) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let inside = |name: &str| folder.path().join(name).display().to_string();
        let files = folder.path().join("files");
        let register = format!("redb://{}", inside("register.redb"));
        let data = match name.as_str() {
            "bucket" => format!("file://{}", inside("bucket")),
            _ => inside("data"),
        };
        let store = match name.as_str() {
            "folder" | "bucket" => None,
            "memory" => Some("memory://".to_owned()),
            "file" => {
                std::fs::create_dir(&files).expect("an empty folder");
                Some(format!("file://{}", files.display()))
            }
            other => {
                panic!(
                    "IFMATCH_SERVER={other}: folder, bucket, memory and file can be started, others need IFMATCH_URL"
                )
            }
        };
        let mut args = vec![
            "serve",
            "--data",
            &data,
            "--listen-tables",
            "127.0.0.1:0",
            "--listen-s3",
            "127.0.0.1:0",
        ];
        if let Some(store) = &store {
            args.extend(["--store", store]);
        }
        if name == "bucket" {
            args.extend(["--register", &register]);
        }
        let mut gateway = Gateway::start(args);
        let tables = Endpoint::of(&format!("http://{}", gateway.tables()));
        let s3 = Endpoint::of(&format!("http://{}", gateway.s3()));
        let site = Site::new(name, Endpoint::of(&gateway.url("")), Some(tables), Some(s3));
        Self {
            site: Arc::new(site),
            started: Some((gateway, folder)),
        }
    }
}
