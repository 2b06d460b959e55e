//! Clusters that cannot be used, users and encrypted connections.

use std::fs;
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};
use ifmatch_etcd::{Address, ConnectErrorKind, EtcdRegister};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{Key, Register, RegisterErrorKind, Scan, Swap};
use ifmatch_testbed::etcd::{etcdctl, start};
use ifmatch_testbed::{Port, Proxy};
use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::common::connect;

async fn refusal(url: &str) -> (ConnectErrorKind, String) {
    let error = EtcdRegister::connect(url).await.unwrap_err();
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn urls_of_other_servers_are_refused() {
    for url in ["", "localhost", "http://localhost", "etcd://", "etcd://a,,b", "etcd://user@host", "etcd://host/?x=y"] {
        let (kind, message) = refusal(url).await;
        assert_eq!(kind, ConnectErrorKind::Url, "{url}: {message}");
    }
}

#[tokio::test]
async fn a_missing_cluster_is_reported() {
    let port = Port::claim();
    let (kind, message) = refusal(&format!("etcd://{}", port.address())).await;
    assert_eq!(kind, ConnectErrorKind::Unreachable, "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_verified() {
    let server = start(&[]).await;
    connect(&server.url()).await;
    etcdctl(&server, &["user", "add", "root:correct"]);
    etcdctl(&server, &["user", "grant-role", "root", "root"]);
    etcdctl(&server, &["auth", "enable"]);
    let address = server.address();
    let register = connect(&format!("etcd://root:correct@{address}")).await;
    conformance::run(register, RaceSize::new(2, 1)).await;
    for user in ["root:mistake@", ""] {
        let (kind, message) = refusal(&format!("etcd://{user}{address}")).await;
        assert_eq!(kind, ConnectErrorKind::Denied, "{message}");
        assert!(!message.contains("mistake"), "{message}");
    }
}

/// A register notices a cluster that lacks changes it has seen, even one with the same identity.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_lacks_changes_is_noticed() {
    let mut server = start(&[]).await;
    let register = connect(&server.url()).await;
    let key = Key::new("key").unwrap();
    let record = Record::forgotten(Revision::new(1));
    assert_eq!(register.compare_and_swap(&key, Revision::NONE, Some(&record)).await.unwrap(), Swap::Done);
    server.kill();
    fs::remove_dir_all(server.folder().join("member")).unwrap();
    server.restart().await;
    loop {
        let error = register.load(&key).await.expect_err("the change is missing");
        if error.to_string().contains("restored from a backup") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A new process cannot notice: it has seen no change.
    assert_eq!(connect(&server.url()).await.load(&key).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_is_noticed() {
    let (first, second) = (start(&[]).await, start(&[]).await);
    connect(&second.url()).await;
    // The register uses the old connection before or after it notices its end.
    for pause in [0, 0, 0, 50, 50, 50].map(Duration::from_millis) {
        let proxy = Proxy::start(first.address()).await;
        let register = connect(&format!("etcd://{}", proxy.address())).await;
        proxy.redirect(second.address());
        tokio::time::sleep(pause).await;
        let scan = Scan { limit: 1, ..Scan::default() };
        // The first failure may be that of the old connection.
        let mut errors = Vec::new();
        for _ in 0..3 {
            errors.push(register.scan(&scan).await.unwrap_err());
        }
        assert!(errors.iter().all(|error| error.kind() == RegisterErrorKind::Unavailable), "{errors:?}");
        assert!(errors[2].to_string().contains("another etcd cluster"), "{errors:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_separate_registers() {
    let server = start(&[]).await;
    let (one, other) = (connect(&format!("{}/one", server.url())).await, connect(&server.url()).await);
    conformance::run(one, RaceSize::new(2, 1)).await;
    assert_eq!(other.scan(&Scan { limit: 1, ..Scan::default() }).await.unwrap(), []);
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
    let server = start(&["--cert-file", &certificate, "--key-file", &key]).await;
    let address = || format!("etcds://localhost:{}", server.address().port()).parse::<Address>().unwrap();

    // The cluster may still be without a leader.
    let register = loop {
        let trusted = address().with_root_certificate(cert.pem().as_bytes()).unwrap();
        match EtcdRegister::connect_to(trusted).await {
            Ok(register) => break register,
            Err(error) => assert!(!error.to_string().contains("certificate verify"), "{error}"),
        }
    };
    conformance::run(register, RaceSize::new(2, 1)).await;

    let stranger = generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let mistrusted = address().with_root_certificate(stranger.as_bytes()).unwrap();
    let error = EtcdRegister::connect_to(mistrusted).await.unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::Unreachable, "{error}");
    assert_eq!(
        refusal(&format!("etcds://localhost:{}", server.address().port())).await.0,
        ConnectErrorKind::Unreachable
    );
}
