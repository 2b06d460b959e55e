//! TLS: HTTP/1.1 and HTTP/2 by ALPN, and unusable certificates.

use std::fs;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ifmatch_runtime::{Clock, SystemClock};
use support::raw::Connection;
use support::tls::Files;
use support::{Gateway, run};

use crate::{RELOADED, eventually, hang_up};

fn put(version: Version) -> Request<Full<Bytes>> {
    let request = Request::put("https://localhost/c/a")
        .version(version)
        .header("host", "localhost");
    request
        .body(Full::new(Bytes::from_static(b"hello")))
        .unwrap()
}

#[tokio::test]
async fn both_http_versions_work() {
    let files = Files::new();
    let gateway = Gateway::start(files.flags("cert.pem", "key.pem"));
    assert!(gateway.url("").starts_with("https://127.0.0.1:"));

    let stream = files.connect(&gateway, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = put(Version::HTTP_2);
    request.headers_mut().remove("host");
    let created = client.send_request(request).await.unwrap();
    assert_eq!(
        (created.version(), created.status().as_u16()),
        (Version::HTTP_2, 201)
    );
    let read = client
        .send_request(
            Request::get("https://localhost/c/a")
                .body(Full::default())
                .unwrap(),
        )
        .await
        .unwrap();
    assert_eq!(read.headers()["etag"], created.headers()["etag"]);
    assert_eq!(
        read.into_body().collect().await.unwrap().to_bytes(),
        "hello"
    );

    for alpn in [&["http/1.1"][..], &[]] {
        let stream = files.connect(&gateway, alpn).await;
        let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let replaced = client.send_request(put(Version::HTTP_11)).await.unwrap();
        assert_eq!(
            (replaced.version(), replaced.status().as_u16()),
            (Version::HTTP_11, 200)
        );
    }
}

#[test]
fn plain_http_is_rejected_in_words_that_the_client_shows() {
    let files = Files::new();
    let flags = files.flags("cert.pem", "key.pem");
    let gateway = Gateway::start(
        flags
            .iter()
            .map(String::as_str)
            .chain(["--log", "info,ifmatch_http_server=debug"]),
    );
    let mut plain = Connection::open(gateway.address());
    plain.send("GET /-/health HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = String::from_utf8(plain.rest()).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 400 Bad Request\r\n") && answer.contains("Use https://"),
        "{answer}"
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("content-length: {}\r\n", body.len())),
        "{answer}"
    );
    eventually("the reason in the log", || {
        gateway
            .stderr()
            .contains("the client doesn't speak TLS: use https://")
            .then_some(())
    });
}

#[test]
fn the_log_says_that_a_client_does_not_trust_the_certificate() {
    let files = Files::new();
    let flags = files.flags("cert.pem", "key.pem");
    let gateway = Gateway::start(
        flags
            .iter()
            .map(String::as_str)
            .chain(["--log", "info,ifmatch_http_server=debug"]),
    );
    let health = run([
        "health",
        "--url",
        &gateway.url("").replace("127.0.0.1", "localhost"),
    ]);
    assert_eq!(health.status.code(), Some(1), "{health:#?}");
    eventually("the reason in the log", || {
        gateway
            .stderr()
            .contains("the client doesn't trust the certificate")
            .then_some(())
    });
}

/// Plain `openssl req -x509` makes such certificates, which this program's own commands refuse.
#[test]
fn a_certificate_that_clients_refuse_is_warned_about() {
    let files = Files::new();
    let check = |files: &Files| {
        let mut flags = files.flags("cert.pem", "key.pem");
        flags.push("--check".to_owned());
        let end = run(flags);
        assert_eq!(end.status.code(), Some(0), "{end:#?}");
        end.stderr
    };
    assert!(!check(&files).contains("certificate"));
    for (names, authority, expected) in [
        (vec!["localhost".to_owned()], true, "is a CA certificate"),
        (vec![], false, "has no subjectAltName"),
    ] {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        if authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        fs::write(
            files.path("cert.pem"),
            params.self_signed(&key).unwrap().pem(),
        )
        .unwrap();
        fs::write(files.path("key.pem"), key.serialize_pem()).unwrap();
        let said = check(&files);
        assert!(
            said.contains(expected) && said.contains("openssl req"),
            "{said}"
        );
    }
}

#[test]
fn an_encrypted_key_is_named_as_such() {
    let files = Files::new();
    for (name, text) in [
        (
            "pkcs8.pem",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIFHDBOBg==\n-----END ENCRYPTED PRIVATE KEY-----\n",
        ),
        (
            "old.pem",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
        ),
    ] {
        fs::write(files.path(name), text).unwrap();
        let end = run(files.flags("cert.pem", name));
        assert_eq!(end.status.code(), Some(2), "{name}: {end:#?}");
        assert!(
            end.stderr.contains("is encrypted") && end.stderr.contains("openssl pkey"),
            "{name}: {end:#?}"
        );
    }
}

#[test]
fn unusable_certificates_are_named() {
    let files = Files::new();
    for (cert, key, expected) in [
        ("missing.pem", "key.pem", "missing.pem"),
        ("cert.pem", "missing.pem", "missing.pem"),
        ("text.pem", "key.pem", "contains no certificate"),
        ("cert.pem", "text.pem", "contains no private key"),
        ("cert.pem", "cert.pem", "contains no private key"),
        ("cert.pem", "other.pem", "doesn't match the certificate"),
    ] {
        let end = run(files.flags(cert, key));
        assert_eq!(end.status.code(), Some(2), "{cert} {key}: {end:#?}");
        assert!(end.stderr.contains(expected), "{cert} {key}: {end:#?}");
        assert!(!end.stderr.contains("panicked"), "{cert} {key}: {end:#?}");
    }
    let end = run(["serve", "--store", "memory://", "--tls-key", "key.pem"]);
    assert!(
        end.status.code() == Some(2) && end.stderr.contains("--tls-cert"),
        "{end:#?}"
    );
}

/// Clients verify the name of the certificate that they get.
#[tokio::test]
async fn a_client_gets_the_certificate_for_the_name_that_it_requests_also_after_a_reload() {
    let hosts = ["localhost", "a.example", "*.b.example"].map(Files::of);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("site.toml");
    let write = |order: [usize; 3]| {
        let list = |name: &str| {
            order
                .map(|at| format!("{:?}", hosts[at].path(name)))
                .join(", ")
        };
        let text = format!(
            "listen = '127.0.0.1:0'\nstore = 'memory://'\ntls-cert = [{}]\ntls-key = [{}]\n",
            list("cert.pem"),
            list("key.pem")
        );
        fs::write(&config, text).unwrap();
    };
    write([0, 1, 2]);
    let gateway = Gateway::start([
        "serve",
        "--config",
        config.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
    ]);
    let trusted: Vec<_> = hosts.iter().collect();
    let ask_all = async || {
        for host in ["localhost", "a.example", "x.b.example"] {
            Files::connect_to_host(&trusted, &gateway, host, &["h2"]).await;
        }
    };
    ask_all().await;
    write([2, 0, 1]);
    hang_up(&gateway, RELOADED);
    ask_all().await;
    let end = run([
        "serve",
        "--store",
        "memory://",
        "--tls-cert",
        "a,b",
        "--tls-key",
        "a",
    ]);
    assert!(
        end.status.code() == Some(2) && end.stderr.contains("Name one key for each"),
        "{end:#?}"
    );
}

#[tokio::test]
async fn a_certificate_near_its_end_is_warned_about_at_start_by_readiness_and_on_reload() {
    let mut files = Files::new();
    let now = SystemClock.wall().micros() / 1_000_000;
    let end = now + 3 * 24 * 3_600;
    files.expire(end);
    let gateway = Gateway::start(files.flags("cert.pem", "key.pem"));
    let file = files.path("cert.pem").display().to_string();
    let warning = format!("the certificate in {file} expires on ");
    eventually("the warning at the start", || {
        gateway.stderr().contains(&warning).then_some(())
    });
    for (path, part) in [
        ("/-/ready", format!("\"warning\":\"{warning}")),
        (
            "/-/metrics",
            format!("\nifmatch_tls_certificate_not_after_seconds{{file=\"{file}\"}} {end}\n"),
        ),
    ] {
        let stream = files.connect(&gateway, &["http/1.1"]).await;
        let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(path)
            .header("host", "localhost")
            .body(Full::<Bytes>::default())
            .unwrap();
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains(&part), "{path}: {text}");
    }
    files.expire(now - 1);
    hang_up(&gateway, "clients refuse it; renew it and send SIGHUP");
}
