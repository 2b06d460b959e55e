//! Servers that can't hold a register, and encrypted connections.

use ifmatch_core::record::{Record, Revision};
use ifmatch_redis::{ConnectErrorKind, Options, RedisRegister};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{Key, Register, Scan};
use ifmatch_testbed::engine::refusal;
use ifmatch_testbed::redis::start;
use ifmatch_testbed::{Certificate, Port};

use crate::{Redis, send};

#[test]
fn passwords_are_not_shown() {
    let options = Options::new("redis://user:secret@localhost").unwrap();
    assert!(!format!("{options:?}").contains("secret"), "{options:?}");
    let error = Options::new("redis://user:secret@host:port").unwrap_err();
    assert!(
        !format!("{error} {error:?}").contains("secret"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_wrong_password_is_reported_without_showing_it() {
    let server = start(&["--requirepass", "correct"]).await;
    let address = server.address();
    RedisRegister::connect(&format!("redis://:correct@{address}"))
        .await
        .unwrap();
    for url in [
        format!("redis://:mistake@{address}"),
        format!("redis://{address}"),
    ] {
        let (kind, message) = refusal::<Redis>(&url).await;
        assert_eq!(kind, ConnectErrorKind::Denied, "{message}");
        assert!(!message.contains("mistake"), "{message}");
    }
}

/// Without the server's time, processes would compare deadlines with clocks of their own.
#[tokio::test]
async fn a_user_without_the_right_to_read_the_time_is_refused() {
    let server = start(&[]).await;
    send(
        &server,
        &[
            "ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-time",
        ],
    )
    .await;
    let (kind, message) =
        refusal::<Redis>(&format!("redis://limited:secret@{}", server.address())).await;
    assert_eq!(kind, ConnectErrorKind::Denied, "{message}");
}

#[tokio::test]
async fn a_replica_is_refused() {
    let (primary, replica) = (start(&[]).await, start(&[]).await);
    send(
        &replica,
        &[
            "REPLICAOF",
            "127.0.0.1",
            &primary.address().port().to_string(),
        ],
    )
    .await;
    let (kind, message) = refusal::<Redis>(&replica.url()).await;
    assert_eq!(kind, ConnectErrorKind::Unsuitable);
    assert!(
        message.contains("Use the address of the primary"),
        "{message}"
    );
}

/// The register was connected before its server became a replica.
#[tokio::test]
async fn a_server_that_becomes_a_replica_is_used_no_longer() {
    let (primary, server) = (start(&[]).await, start(&[]).await);
    let register = RedisRegister::connect(&server.url()).await.unwrap();
    let key = Key::new("key").unwrap();
    let swap = async || {
        register
            .compare_and_swap(
                &key,
                Revision::NONE,
                Some(&Record::forgotten(Revision::new(1))),
            )
            .await
    };
    register
        .compare_and_swap(&key, Revision::NONE, None)
        .await
        .unwrap();
    send(
        &server,
        &[
            "REPLICAOF",
            "127.0.0.1",
            &primary.address().port().to_string(),
        ],
    )
    .await;
    for _ in 0..2 {
        assert!(swap().await.is_err());
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_refused() {
    let server = start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await;
    let (kind, message) = refusal::<Redis>(&server.url()).await;
    assert_eq!(kind, ConnectErrorKind::Unsuitable);
    assert!(message.contains("maxmemory-policy noeviction"), "{message}");
}

#[tokio::test]
async fn keys_of_another_program_are_left_alone() {
    let server = start(&[]).await;
    send(&server, &["SET", "ifmatch:identity", "other"]).await;
    assert_eq!(
        refusal::<Redis>(&server.url()).await.0,
        ConnectErrorKind::Unsuitable
    );
    assert!(
        send(&server, &["GET", "ifmatch:identity"])
            .await
            .contains("other")
    );
}

#[tokio::test]
async fn registers_with_different_prefixes_share_a_server() {
    let server = start(&[]).await;
    let open = async |prefix| {
        RedisRegister::connect_with(Options::new(&server.url()).unwrap().with_prefix(prefix)).await
    };
    let (one, other) = (open("one:").await.unwrap(), open("other:").await.unwrap());
    conformance::run(one, RaceSize::new(2, 1)).await;
    let all = Scan {
        limit: 1,
        ..Scan::default()
    };
    assert_eq!(other.scan(&all).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified() {
    let [ours, stranger] = [Certificate::of("localhost"), Certificate::of("localhost")];
    let (certificate, key) = (
        ours.file().display().to_string(),
        ours.key_file().display().to_string(),
    );
    let port = Port::claim();
    let tls_port = port.number().to_string();
    let settings = [
        "--tls-port",
        &tls_port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
    ];
    let _server = start(
        &[
            &settings[..],
            &[
                "--tls-ca-cert-file",
                &certificate,
                "--tls-auth-clients",
                "no",
            ],
        ]
        .concat(),
    )
    .await;
    let url = format!("rediss://localhost:{tls_port}");

    let trusted = Options::with_root_certificate(&url, ours.pem().as_bytes()).unwrap();
    let register = RedisRegister::connect_with(trusted).await.unwrap();
    conformance::run(register, RaceSize::new(2, 1)).await;

    let mistrusted = Options::with_root_certificate(&url, stranger.pem().as_bytes()).unwrap();
    let error = RedisRegister::connect_with(mistrusted).await.unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::Unreachable, "{error}");
    assert_eq!(
        refusal::<Redis>(&url).await.0,
        ConnectErrorKind::Unreachable,
        "the system does not trust it"
    );
    assert_eq!(
        refusal::<Redis>(&format!("redis://localhost:{tls_port}"))
            .await
            .0,
        ConnectErrorKind::Unreachable
    );
    let error = Options::with_root_certificate(&url, b"no certificate").unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::Certificate, "{error}");
}
