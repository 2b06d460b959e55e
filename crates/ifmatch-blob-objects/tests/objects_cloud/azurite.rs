//! Azurite, the Azure Storage emulator, as a separate process on a free port.

use std::path::PathBuf;
use std::process::Stdio;

use object_store::ClientOptions;
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::{HttpConnector, ReqwestConnector};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::{Settings, settings};

/// The emulator's account and its published key.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

pub(crate) struct Server {
    endpoint: String,
    /// Ends when this value is dropped.
    _process: Child,
    _folder: tempfile::TempDir,
}

/// Starts the emulator and creates the container `container`.
pub(crate) async fn start() -> Server {
    let here: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "azurite"].iter().collect();
    let program = here.join("node_modules/azurite/dist/src/blob/main.js");
    assert!(program.exists(), "Azurite is missing: run 'npm ci --ignore-scripts' in {}", here.display());
    let folder = tempfile::tempdir().unwrap();
    let mut process = Command::new("node")
        .arg(program)
        .args(["--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node is needed to run Azurite");
    let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let address = loop {
        let line = lines.next_line().await.unwrap().expect("Azurite ended before it listened");
        if let Some((_, address)) = line.split_once("successfully listens on http://") {
            break address.trim().to_owned();
        }
    };
    // Its output must be read.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let server = Server { endpoint: format!("http://{address}/{ACCOUNT}"), _process: process, _folder: folder };
    server.create_container().await;
    server
}

impl Server {
    pub(crate) fn settings(&self) -> Settings {
        settings(&[
            ("AZURE_STORAGE_ENDPOINT", &self.endpoint),
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
            ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
            ("AZURE_ALLOW_HTTP", "true"),
        ])
    }

    async fn create_container(&self) {
        let credential = AzureCredential::AccessKey(AzureAccessKey::try_new(KEY).unwrap());
        let mut request = http::Request::put(format!("{}/container?restype=container", self.endpoint))
            .header("content-length", "0")
            .body(bytes::Bytes::new().into())
            .unwrap();
        AzureAuthorizer::new(&credential, ACCOUNT).try_authorize(&mut request).unwrap();
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let client = ReqwestConnector::default().connect(&ClientOptions::new().with_allow_http(true)).unwrap();
        let response = client.execute(request).await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
    }
}
