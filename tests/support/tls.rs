//! Certificates in files, and clients that trust them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Gateway;

/// A folder with `cert.pem`, a certificate, and `key.pem`, its key. `other.pem` is another key, and `text.pem` no PEM at all.
pub struct Files {
    folder: tempfile::TempDir,
    certificate: CertificateDer<'static>,
}

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

impl Files {
    /// Creates the files with a certificate for localhost.
    pub fn new() -> Self {
        Self::of("localhost")
    }

    /// Creates the files with a certificate for this host.
    pub fn of(host: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let signed = rcgen::generate_simple_self_signed([host.to_owned()]).expect("a valid host");
        fs::write(folder.path().join("cert.pem"), signed.cert.pem()).expect("the folder is ours");
        fs::write(
            folder.path().join("key.pem"),
            signed.signing_key.serialize_pem(),
        )
        .expect("the folder is ours");
        let other = rcgen::KeyPair::generate().expect("randomness");
        fs::write(folder.path().join("other.pem"), other.serialize_pem())
            .expect("the folder is ours");
        fs::write(folder.path().join("text.pem"), "no PEM at all").expect("the folder is ours");
        Self {
            folder,
            certificate: signed.cert.der().clone(),
        }
    }

    /// Replaces the certificate by one that is valid until `end`, in seconds since 1970.
    pub fn expire(&mut self, end: u64) {
        let key = rcgen::KeyPair::generate().expect("randomness");
        let mut params =
            rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a valid host");
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(end);
        let signed = params.self_signed(&key).expect("a valid certificate");
        fs::write(self.path("cert.pem"), signed.pem()).expect("the folder is ours");
        fs::write(self.path("key.pem"), key.serialize_pem()).expect("the folder is ours");
        self.certificate = signed.der().clone();
    }

    /// Returns the path of one of its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the arguments of a gateway with this certificate and this key.
    pub fn flags(&self, cert: &str, key: &str) -> Vec<String> {
        let text = |path: &Path| path.to_str().expect("a path of text").to_owned();
        let (cert, key) = (text(&self.path(cert)), text(&self.path(key)));
        [
            "serve",
            "--store",
            "memory://",
            "--tls-cert",
            &cert,
            "--tls-key",
            &key,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// Connects to a gateway with this certificate.
    pub async fn connect(&self, gateway: &Gateway, alpn: &[&str]) -> TlsStream<TcpStream> {
        Self::connect_to_any(&[self], gateway, alpn).await
    }

    /// Connects to a gateway with one of several certificates.
    pub async fn connect_to_any(
        files: &[&Self],
        gateway: &Gateway,
        alpn: &[&str],
    ) -> TlsStream<TcpStream> {
        Self::connect_to_host(files, gateway, "localhost", alpn).await
    }

    /// Connects to a gateway with one of several certificates, and requests a host's.
    pub async fn connect_to_host(
        files: &[&Self],
        gateway: &Gateway,
        host: &str,
        alpn: &[&str],
    ) -> TlsStream<TcpStream> {
        Self::connect_at(files, gateway.address(), host, alpn).await
    }

    /// Connects to a server with one of several certificates, and requests a host's.
    pub async fn connect_at(
        files: &[&Self],
        address: SocketAddr,
        host: &str,
        alpn: &[&str],
    ) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        for files in files {
            roots
                .add(files.certificate.clone())
                .expect("a valid certificate");
        }
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring supports them")
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(address)
            .await
            .expect("the server listens");
        let name = ServerName::try_from(host.to_owned()).expect("a valid host");
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .expect("a handshake with a trusted certificate")
    }
}
