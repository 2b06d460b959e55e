//! The server under test: a running one, or a gateway started by the tests.

use std::env::var;
use std::sync::Arc;

use support::Gateway;
use tempfile::TempDir;

use crate::site::{Endpoint, Site};

/// The server under test; stops with this value if it was started here.
pub(crate) struct Server {
    site: Arc<Site>,
    started: Option<(Gateway, TempDir)>,
}

impl Server {
    /// Returns the server that the environment describes.
    pub(crate) fn of_environment() -> Self {
        let name = var("IFMATCH_SERVER").unwrap_or_else(|_| "gateway".to_owned());
        match var("IFMATCH_URL") {
            Ok(url) => {
                let tables = var("IFMATCH_TABLES_URL").ok();
                let site = Site::new(name, Endpoint::of(&url), tables.as_deref().map(Endpoint::of));
                Self { site: Arc::new(site), started: None }
            }
            Err(_) => Self::start(name),
        }
    }

    /// Returns the address and credentials.
    pub(crate) fn site(&self) -> &Arc<Site> {
        &self.site
    }

    /// Stops the server if it was started here, and returns its log.
    pub(crate) fn stop(self) -> String {
        self.started.map(|(mut gateway, _folder)| gateway.stop().stderr).unwrap_or_default()
    }

    fn start(name: String) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("data").display().to_string();
        let files = folder.path().join("files");
        let store = match name.as_str() {
            "gateway" => None,
            "memory" => Some("memory://".to_owned()),
            "file" => {
                std::fs::create_dir(&files).expect("an empty folder");
                Some(format!("file://{}", files.display()))
            }
            other => panic!("IFMATCH_SERVER={other}: gateway, memory and file can be started, others need IFMATCH_URL"),
        };
        let mut args = vec!["serve", "--data", &data, "--listen-tables", "127.0.0.1:0"];
        if let Some(store) = &store {
            args.extend(["--store", store]);
        }
        let mut gateway = Gateway::start(args);
        let tables = Endpoint::of(&format!("http://{}", gateway.tables()));
        let site = Site::new(name, Endpoint::of(&gateway.url("")), Some(tables));
        Self { site: Arc::new(site), started: Some((gateway, folder)) }
    }
}
