//! TLS on both sides, HTTP/2 to clients, and certificates of upstreams.

use std::future::poll_fn;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::{fs, thread};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use support::origin::{Origin, ok};
use support::raw::exchange;
use support::tls::Files;
use support::{Gateway, run};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{before, get};

/// Starts a TLS proxy in front of an `https` upstream, with `roots` as the trusted certificates.
fn encrypting(files: &Files, upstream: &Gateway, roots: &Path) -> Gateway {
    let mut command = Gateway::command();
    let upstream = format!("https://localhost:{}", upstream.address().port());
    command.args([
        "proxy",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        &upstream,
        "--tls-cert",
    ]);
    command
        .arg(files.path("cert.pem"))
        .arg("--tls-key")
        .arg(files.path("key.pem"))
        .env("SSL_CERT_FILE", roots);
    Gateway::launch(command)
}

async fn speak_http2<T: Read + Write + Unpin + Send + 'static>(
    stream: T,
) -> SendRequest<Full<Bytes>> {
    let (client, connection) = http2::handshake(TokioExecutor::new(), stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

type Connection = SendRequest<Full<Bytes>>;

async fn send(
    connection: &mut Connection,
    request: Request<Full<Bytes>>,
) -> (StatusCode, HeaderMap, Bytes) {
    let (head, body) = connection.send_request(request).await.unwrap().into_parts();
    (
        head.status,
        head.headers,
        body.collect().await.unwrap().to_bytes(),
    )
}

async fn ask(
    connection: &mut Connection,
    request: http::request::Builder,
) -> (StatusCode, HeaderMap, Bytes) {
    send(connection, request.body(Full::from("hello")).unwrap()).await
}

async fn read(connection: &mut Connection, uri: &str) -> (StatusCode, HeaderMap, Bytes) {
    send(connection, Request::get(uri).body(Full::default()).unwrap()).await
}

#[tokio::test]
async fn client_and_upstream_connections_use_tls() {
    let files = Files::new();
    let upstream = Gateway::start(files.flags("cert.pem", "key.pem"));
    let gateway = encrypting(&files, &upstream, &files.path("cert.pem"));
    let mut client = speak_http2(TokioIo::new(files.connect(&gateway, &["h2"]).await)).await;
    let put = Request::put("https://localhost/c/a").header("cache-control", "max-age=600");
    assert_eq!(ask(&mut client, put).await.0, StatusCode::CREATED);
    let (status, headers, body) = read(&mut client, "https://localhost/c/a").await;
    assert_eq!(
        (status, &body[..]),
        (StatusCode::OK, &b"hello"[..]),
        "{headers:?}"
    );
    // All HTTP versions share the stored responses.
    let stream = files.connect(&gateway, &["http/1.1"]).await;
    let (mut other, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::get("/c/a")
        .header("host", "localhost")
        .body(Full::<Bytes>::default())
        .unwrap();
    let hit = other.send_request(request).await.unwrap();
    assert!(
        hit.headers()["cache-status"]
            .to_str()
            .unwrap()
            .starts_with("ifmatch; hit"),
        "{hit:?}"
    );
}

#[tokio::test]
async fn an_unknown_certificate_of_an_upstream_is_rejected() {
    let (files, others) = (Files::new(), Files::new());
    let upstream = Gateway::start(files.flags("cert.pem", "key.pem"));
    let gateway = encrypting(&files, &upstream, &others.path("cert.pem"));
    let mut client = speak_http2(TokioIo::new(files.connect(&gateway, &["h2"]).await)).await;
    assert_eq!(
        read(&mut client, "https://localhost/c/a").await.0,
        StatusCode::BAD_GATEWAY
    );
}

#[test]
fn upstreams_select_http_2_only_if_it_is_offered() {
    let files = Files::new();
    let upstream = Gateway::start(files.flags("cert.pem", "key.pem"));
    let (url, ca) = (
        format!("https://localhost:{}", upstream.address().port()),
        files.path("cert.pem"),
    );
    for (flag, via) in [
        ("--upstream-http2=false", "1.1 ifmatch"),
        ("--upstream-http2", "2.0 ifmatch"),
    ] {
        let gateway = Gateway::start([
            "proxy",
            "--upstream",
            &url,
            "--upstream-ca",
            ca.to_str().unwrap(),
            flag,
        ]);
        for _ in 0..2 {
            assert_eq!(get(&gateway, "/c/none", "").header("via"), via);
        }
    }
}

#[tokio::test]
async fn http_2_clients_get_no_connection_headers() {
    let origin = Origin::start(|_| {
        ok(
            "cache-control: max-age=600\r\nconnection: x-hop\r\nx-hop: 1\r\n",
            "hello",
        )
    });
    let gateway = before(&origin, &[]);
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let mut client = speak_http2(TokioIo::new(stream)).await;
    let (status, headers, body) = read(&mut client, "http://example.com/a").await;
    assert_eq!((status, &body[..]), (StatusCode::OK, &b"hello"[..]));
    assert!(
        !headers.contains_key("connection") && !headers.contains_key("x-hop"),
        "{headers:?}"
    );
    assert_eq!(origin.asked()[0].field("host"), Some("example.com"));
    assert!(
        origin.asked()[0]
            .field("via")
            .is_some_and(|via| via.starts_with("2.0 ifmatch-"))
    );
    let hit = get(&gateway, "/a", "").expect(200);
    assert!(super::status(&hit).contains("; hit"), "{hit:?}");
}

/// An origin with three interim responses that have these fields, too, and a response when the test allows it.
pub(super) fn hinting(fields: &'static str) -> (Origin, Sender<()>) {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let origin = Origin::converse(move |_, stream| {
        for (status, link) in HINTS {
            let hint = format!(
                "HTTP/1.1 {status} Hint\r\nlink: {link}\r\nconnection: x-private\r\nx-private: 1\r\n{fields}\r\n"
            );
            stream.write_all(hint.as_bytes()).unwrap();
        }
        // Fails if the test has failed.
        let _ = released.lock().unwrap().recv();
        stream
            .write_all(ok("cache-control: no-store\r\n", "hello").as_bytes())
            .unwrap();
    });
    (origin, release)
}

const HINTS: [(u16, &str); 3] = [
    (103, "</a.css>; rel=preload"),
    (102, "<b>"),
    (103, "</c.js>; rel=preload"),
];

/// Sends two requests on a connection: both get the hints in order, before the response.
async fn hinted<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
    release: Sender<()>,
) {
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    for _ in 0..2 {
        let request = Request::get("https://localhost/").body(()).unwrap();
        let (mut response, _) = client.send_request(request, true).unwrap();
        for (status, link) in HINTS {
            let hint = poll_fn(|cx| response.poll_informational(cx))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(
                (hint.status().as_u16(), &hint.headers()["link"]),
                (status, &HeaderValue::from_static(link))
            );
            assert_eq!(hint.headers().len(), 1, "{hint:?}");
        }
        release.send(()).unwrap();
        let mut response = response.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.body_mut().data().await.unwrap().unwrap(), "hello");
    }
}

#[tokio::test]
async fn http_2_clients_get_hints_before_the_response() {
    let (origin, release) = hinting("");
    let gateway = before(&origin, &[]);
    hinted(
        TcpStream::connect(gateway.address()).await.unwrap(),
        release,
    )
    .await;
}

#[tokio::test]
async fn clients_get_hints_over_tls() {
    let (origin, release) = hinting("");
    let files = Files::new();
    let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
    let gateway = before(
        &origin,
        &[
            "--tls-cert",
            cert.to_str().unwrap(),
            "--tls-key",
            key.to_str().unwrap(),
        ],
    );
    hinted(files.connect(&gateway, &["h2"]).await, release).await;
}

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
        let client = CertificateParams::default()
            .signed_by(&client_key, &issuer)
            .unwrap();
        write("client.pem", client.pem());
        write("client.key", client_key.serialize_pem());
        write("other.key", KeyPair::generate().unwrap().serialize_pem());

        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(["localhost".to_owned()])
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![server.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        Self {
            address: serve(config, Barrier::new(count)),
            folder,
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns the arguments of a proxy in front of the server.
    fn proxy(&self, flags: &[(&str, &str)]) -> Vec<String> {
        let mut args = vec![
            "proxy".to_owned(),
            format!("--upstream=https://localhost:{}", self.address.port()),
        ];
        args.extend(
            flags
                .iter()
                .map(|(flag, name)| format!("--upstream-{flag}={}", self.file(name))),
        );
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
                drop(
                    reader
                        .get_mut()
                        .write_all(ok("connection: close\r\n", "secret").as_bytes()),
                );
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
        command
            .args(site.proxy(&own))
            .args(["--listen", "127.0.0.1:0"])
            .args(args);
        command.env("SSL_CERT_FILE", site.file("ca.pem"));
        Gateway::launch(command)
    };
    get(&with_system_roots(&[]), "/", "").expect(200);
    get(
        &with_system_roots(&["--upstream-ca", &other.file("ca.pem")]),
        "/",
        "",
    )
    .expect(502);
}

#[test]
fn requests_do_not_wait_for_each_other_at_a_server_that_declines_http_2() {
    let site = Site::with_requests(4);
    let flags = [
        ("ca", "ca.pem"),
        ("client-cert", "client.pem"),
        ("client-key", "client.key"),
    ];
    let mut args = site.proxy(&flags);
    args.extend(["--upstream-http2", "--cache=0"].map(str::to_owned));
    let gateway = Gateway::start(args);
    let address = gateway.address();
    // The first round finds out that the server declines.
    for _ in 0..2 {
        let ask = move || {
            exchange(address, "GET / HTTP/1.1\r\nhost: example.com\r\n\r\n")
                .expect(200)
                .text()
                .to_owned()
        };
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
        (&[("ca", "missing.pem")][..], "can't read --upstream-ca"),
        (&[("ca", "text.pem")], "contains no certificate"),
        (
            &[("client-cert", "text.pem"), ("client-key", "client.key")],
            "contains no certificate",
        ),
        (
            &[("client-cert", "client.pem"), ("client-key", "client.pem")],
            "contains no private key",
        ),
        (
            &[("client-cert", "client.pem"), ("client-key", "other.key")],
            "doesn't match the certificate",
        ),
        (
            &[("client-cert", "client.pem")],
            "--upstream-client-cert needs --upstream-client-key",
        ),
    ] {
        let end = run(site.proxy(flags));
        assert_eq!(end.status.code(), Some(2), "{flags:?}: {end:#?}");
        assert!(
            end.stderr.contains(expected) && !end.stderr.contains("panicked"),
            "{flags:?}: {end:#?}"
        );
    }
}
