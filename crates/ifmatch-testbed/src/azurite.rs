//! Azurite, the Azure Storage emulator, as a separate process on a free port.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::SystemTime;

use http::Request;
use ifmatch_core::date::HttpDate;
use ifmatch_core::shared_key::{self, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Key};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::within;

/// The emulator with the container `container`, in memory.
#[derive(Debug)]
pub struct AzuriteServer {
    address: SocketAddr,
    /// Ends when this value is dropped.
    _process: Child,
    _folder: tempfile::TempDir,
}

/// Starts the emulator, which ends when dropped.
pub async fn start() -> AzuriteServer {
    let here: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "azurite"]
        .iter()
        .collect();
    let program = here.join("node_modules/azurite/dist/src/blob/main.js");
    assert!(
        program.exists(),
        "Azurite is missing: run 'npm ci --ignore-scripts' in {}",
        here.display()
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut process = Command::new("node")
        .arg(program)
        .args([
            "--blobPort",
            "0",
            "--inMemoryPersistence",
            "--skipApiVersionCheck",
            "--disableTelemetry",
            "--silent",
        ])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node is needed to run Azurite");
    let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let listens = async {
        loop {
            let line = lines
                .next_line()
                .await
                .expect("text")
                .expect("Azurite ended before it listened");
            if let Some((_, address)) = line.split_once("successfully listens on http://") {
                return address.trim().parse().expect("an address");
            }
        }
    };
    let address = within("the address of Azurite", listens).await;
    // Its output must be read.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let server = AzuriteServer {
        address,
        _process: process,
        _folder: folder,
    };
    within("a container in Azurite", server.create_container()).await;
    server
}

impl AzuriteServer {
    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the environment of its clients: names and values.
    pub fn settings(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}/{DEVELOPMENT_ACCOUNT}", self.address);
        let settings = [
            ("AZURE_STORAGE_ENDPOINT", &*endpoint),
            ("AZURE_STORAGE_ACCOUNT_NAME", DEVELOPMENT_ACCOUNT),
            ("AZURE_STORAGE_ACCOUNT_KEY", DEVELOPMENT_KEY),
            ("AZURE_ALLOW_HTTP", "true"),
        ];
        settings
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    async fn create_container(&self) {
        let target = format!("/{DEVELOPMENT_ACCOUNT}/container?restype=container");
        let fields = [
            ("x-ms-date", &*now().to_string()),
            ("x-ms-version", "2021-12-02"),
        ];
        let request = Request::put(&target)
            .header(fields[0].0, fields[0].1)
            .header(fields[1].0, fields[1].1);
        let head = request.body(()).expect("a request").into_parts().0;
        let text = shared_key::blob(&head, DEVELOPMENT_ACCOUNT).expect("text");
        let signature = Key::from_base64(DEVELOPMENT_KEY)
            .expect("base64")
            .sign(&text);
        let fields = fields
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .concat();
        let request = format!(
            "PUT {target} HTTP/1.1\r\nhost: {}\r\n{fields}authorization: SharedKey {DEVELOPMENT_ACCOUNT}:{signature}\r\n\
             content-length: 0\r\nconnection: close\r\n\r\n",
            self.address
        );
        let mut stream = TcpStream::connect(self.address)
            .await
            .expect("Azurite listens");
        stream
            .write_all(request.as_bytes())
            .await
            .expect("Azurite reads");
        let mut response = String::new();
        stream
            .read_to_string(&mut response)
            .await
            .expect("Azurite answers");
        assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "signatures carry the time of day"
)]
fn now() -> HttpDate {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a date after 1970");
    HttpDate::from_unix(since.as_secs().cast_signed())
}
