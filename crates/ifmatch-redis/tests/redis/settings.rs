//! Servers that cannot hold a register, and encrypted connections.

use std::fs;

use ifmatch_core::record::{Record, Revision};
use ifmatch_redis::{ConnectErrorKind, Options, RedisRegister};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{Key, Register, Scan};
use ifmatch_testbed::Port;
use ifmatch_testbed::redis::start;
use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::common::send;

async fn refusal(url: &str) -> (ConnectErrorKind, String) {
    let error = RedisRegister::connect(url).await.unwrap_err();
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn urls_of_other_servers_are_refused() {
    for url in ["", "localhost", "http://localhost", "redis://", "redis://host:port", "rediss://host/#insecure"] {
        let (kind, message) = refusal(url).await;
        assert_eq!(kind, ConnectErrorKind::Url, "{url}: {message}");
    }
}

#[test]
fn passwords_are_not_shown() {
    let options = Options::new("redis://user:secret@localhost").unwrap();
    assert!(!format!("{options:?}").contains("secret"), "{options:?}");
    let error = Options::new("redis://user:secret@host:port").unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn a_missing_server_is_reported() {
    let port = Port::claim();
    let (kind, message) = refusal(&format!("redis://{}", port.address())).await;
    assert_eq!(kind, ConnectErrorKind::Unreachable, "{message}");
}

#[tokio::test]
async fn a_wrong_password_is_reported_without_showing_it() {
    let server = start(&["--requirepass", "correct"]).await;
    let address = server.address();
    RedisRegister::connect(&format!("redis://:correct@{address}")).await.unwrap();
    for url in [format!("redis://:mistake@{address}"), format!("redis://{address}")] {
        let (kind, message) = refusal(&url).await;
        assert_eq!(kind, ConnectErrorKind::Denied, "{message}");
        assert!(!message.contains("mistake"), "{message}");
    }
}

/// Without the server's time, processes would compare deadlines with clocks of their own.
#[tokio::test]
async fn a_user_without_the_right_to_read_the_time_is_refused() {
    let server = start(&[]).await;
    send(&server, &["ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-time"]).await;
    let (kind, message) = refusal(&format!("redis://limited:secret@{}", server.address())).await;
    assert_eq!(kind, ConnectErrorKind::Denied, "{message}");
}

#[tokio::test]
async fn a_replica_is_refused() {
    let (primary, replica) = (start(&[]).await, start(&[]).await);
    send(&replica, &["REPLICAOF", "127.0.0.1", &primary.address().port().to_string()]).await;
    let (kind, message) = refusal(&replica.url()).await;
    assert_eq!(kind, ConnectErrorKind::Unsuitable);
    assert!(message.contains("use the address of the primary"), "{message}");
}

/// The register was connected before its server became a replica.
#[tokio::test]
async fn a_server_that_becomes_a_replica_is_used_no_longer() {
    let (primary, server) = (start(&[]).await, start(&[]).await);
    let register = RedisRegister::connect(&server.url()).await.unwrap();
    let key = Key::new("key").unwrap();
    let swap =
        async || register.compare_and_swap(&key, Revision::NONE, Some(&Record::forgotten(Revision::new(1)))).await;
    register.compare_and_swap(&key, Revision::NONE, None).await.unwrap();
    send(&server, &["REPLICAOF", "127.0.0.1", &primary.address().port().to_string()]).await;
    for _ in 0..2 {
        assert!(swap().await.is_err());
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_refused() {
    let server = start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await;
    let (kind, message) = refusal(&server.url()).await;
    assert_eq!(kind, ConnectErrorKind::Unsuitable);
    assert!(message.contains("maxmemory-policy noeviction"), "{message}");
}

#[tokio::test]
async fn keys_of_another_program_are_left_alone() {
    let server = start(&[]).await;
    send(&server, &["SET", "ifmatch:identity", "other"]).await;
    assert_eq!(refusal(&server.url()).await.0, ConnectErrorKind::Unsuitable);
    assert!(send(&server, &["GET", "ifmatch:identity"]).await.contains("other"));
}

#[tokio::test]
async fn registers_with_different_prefixes_share_a_server() {
    let server = start(&[]).await;
    let open =
        async |prefix| RedisRegister::connect_with(Options::new(&server.url()).unwrap().with_prefix(prefix)).await;
    let (one, other) = (open("one:").await.unwrap(), open("other:").await.unwrap());
    conformance::run(one, RaceSize::new(2, 1)).await;
    let all = Scan { limit: 1, ..Scan::default() };
    assert_eq!(other.scan(&all).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, pem: String| {
        fs::write(folder.path().join(name), pem).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let (certificate, key) = (file("certificate", cert.pem()), file("key", signing_key.serialize_pem()));
    let port = Port::claim();
    let tls_port = port.number().to_string();
    let settings = ["--tls-port", &tls_port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    let _server =
        start(&[&settings[..], &["--tls-ca-cert-file", &certificate, "--tls-auth-clients", "no"]].concat()).await;
    let url = format!("rediss://localhost:{tls_port}");

    let trusted = Options::with_root_certificate(&url, cert.pem().as_bytes()).unwrap();
    let register = RedisRegister::connect_with(trusted).await.unwrap();
    conformance::run(register, RaceSize::new(2, 1)).await;

    let stranger = generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let mistrusted = Options::with_root_certificate(&url, stranger.as_bytes()).unwrap();
    let error = RedisRegister::connect_with(mistrusted).await.unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::Unreachable, "{error}");
    assert_eq!(refusal(&url).await.0, ConnectErrorKind::Unreachable, "the system does not trust it");
    assert_eq!(refusal(&format!("redis://localhost:{tls_port}")).await.0, ConnectErrorKind::Unreachable);
    let error = Options::with_root_certificate(&url, b"no certificate").unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::Certificate, "{error}");
}
