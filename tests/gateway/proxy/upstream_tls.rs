//! Certificates between the proxy and its upstreams: own authorities, and mutual TLS.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Barrier};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use support::raw::exchange;
use support::{Gateway, run};

use super::get;
use super::origin::ok;

/// An authority, a client certificate of its own, and an `https` server that demands one.
struct Site {
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Site {
    fn start() -> Self {
        Self::with_requests(1)
    }

    /// Responds once this number of requests have arrived.
    fn with_requests(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        write("ca.pem", authority.pem());
        write("text.pem", "no PEM at all".to_owned());
        let client_key = KeyPair::generate().unwrap();
        let client = CertificateParams::default().signed_by(&client_key, &issuer).unwrap();
        write("client.pem", client.pem());
        write("client.key", client_key.serialize_pem());
        write("other.key", KeyPair::generate().unwrap().serialize_pem());

        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![server.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        Self { address: serve(config, Barrier::new(count)), folder }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns the arguments of a proxy in front of the server.
    fn proxy(&self, flags: &[(&str, &str)]) -> Vec<String> {
        let mut args = vec!["proxy".to_owned(), format!("--upstream=https://localhost:{}", self.address.port())];
        args.extend(flags.iter().map(|(flag, name)| format!("--upstream-{flag}={}", self.file(name))));
        args
    }
}

/// Answers one request per connection.
fn serve(config: ServerConfig, arrived: Barrier) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::new((Arc::new(config), arrived));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let connection = ServerConnection::new(Arc::clone(&shared.0)).unwrap();
                let mut reader = BufReader::new(StreamOwned::new(connection, stream));
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    // Fails if the handshake does.
                    if !reader.read_line(&mut head).is_ok_and(|count| count > 0) {
                        return;
                    }
                }
                shared.1.wait();
                drop(reader.get_mut().write_all(ok("connection: close\r\n", "secret").as_bytes()));
                reader.get_mut().conn.send_close_notify();
                drop(reader.get_mut().flush());
            });
        }
    });
    address
}

#[test]
fn a_server_that_demands_a_certificate_gets_it() {
    let site = Site::start();
    let own = [("client-cert", "client.pem"), ("client-key", "client.key")];
    let gateway = Gateway::start(site.proxy(&[&[("ca", "ca.pem")][..], &own].concat()));
    assert_eq!(get(&gateway, "/", "").expect(200).text(), "secret");

    let anonymous = Gateway::start(site.proxy(&[("ca", "ca.pem")]));
    get(&anonymous, "/", "").expect(502);

    // The flag replaces the authorities of the system, which would accept the server.
    let other = Site::start();
    let with_system_roots = |args: &[&str]| {
        let mut command = Gateway::command();
        command.args(site.proxy(&own)).args(["--listen", "127.0.0.1:0"]).args(args);
        command.env("SSL_CERT_FILE", site.file("ca.pem"));
        Gateway::launch(command)
    };
    get(&with_system_roots(&[]), "/", "").expect(200);
    get(&with_system_roots(&["--upstream-ca", &other.file("ca.pem")]), "/", "").expect(502);
}

#[test]
fn requests_do_not_wait_for_each_other_at_a_server_that_declines_http_2() {
    let site = Site::with_requests(4);
    let flags = [("ca", "ca.pem"), ("client-cert", "client.pem"), ("client-key", "client.key")];
    let mut args = site.proxy(&flags);
    args.extend(["--upstream-http2", "--cache=0"].map(str::to_owned));
    let gateway = Gateway::start(args);
    let address = gateway.address();
    // The first round finds out that the server declines.
    for _ in 0..2 {
        let ask =
            move || exchange(address, "GET / HTTP/1.1\r\nhost: example.com\r\n\r\n").expect(200).text().to_owned();
        let clients: Vec<_> = (0..4).map(|_| thread::spawn(ask)).collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), "secret");
        }
    }
}

#[test]
fn unusable_files_are_named() {
    let site = Site::start();
    for (flags, expected) in [
        (&[("ca", "missing.pem")][..], "cannot read --upstream-ca"),
        (&[("ca", "text.pem")], "contains no certificate"),
        (&[("client-cert", "text.pem"), ("client-key", "client.key")], "contains no certificate"),
        (&[("client-cert", "client.pem"), ("client-key", "client.pem")], "contains no private key"),
        (&[("client-cert", "client.pem"), ("client-key", "other.key")], "does not match the certificate"),
        (&[("client-cert", "client.pem")], "--upstream-client-cert needs --upstream-client-key"),
    ] {
        let end = run(site.proxy(flags));
        assert_eq!(end.status.code(), Some(2), "{flags:?}: {end:#?}");
        assert!(end.stderr.contains(expected) && !end.stderr.contains("panicked"), "{flags:?}: {end:#?}");
    }
}
