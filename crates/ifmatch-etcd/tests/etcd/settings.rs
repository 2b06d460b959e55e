//! Clusters that must not be used, users, prefixes and encrypted connections.

use std::fs;
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};
use ifmatch_etcd::{Address, ConnectErrorKind, EtcdRegister};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{Key, Register, RegisterErrorKind, Scan, Swap};
use ifmatch_testbed::engine::refusal;
use ifmatch_testbed::etcd::{etcdctl, start};
use ifmatch_testbed::{Certificate, Proxy, within};

use crate::{Etcd, connect};

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
        let (kind, message) = refusal::<Etcd>(&format!("etcd://{user}{address}")).await;
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
    assert_eq!(
        register
            .compare_and_swap(&key, Revision::NONE, Some(&record))
            .await
            .unwrap(),
        Swap::Done
    );
    server.kill();
    fs::remove_dir_all(server.folder().join("member")).unwrap();
    server.restart().await;
    let noticed = async {
        loop {
            let error = register
                .load(&key)
                .await
                .expect_err("the change is missing");
            if error.to_string().contains("restored from a backup") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("an error that names the backup", noticed).await;
    // A new process can't notice: it has seen no change.
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
        let scan = Scan {
            limit: 1,
            ..Scan::default()
        };
        // The first failure may be the old connection's.
        let mut errors = Vec::new();
        for _ in 0..3 {
            errors.push(register.scan(&scan).await.unwrap_err());
        }
        assert!(
            errors
                .iter()
                .all(|error| error.kind() == RegisterErrorKind::Unavailable),
            "{errors:?}"
        );
        assert!(
            errors[2].to_string().contains("another etcd cluster"),
            "{errors:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_separate_registers() {
    let server = start(&[]).await;
    let (one, other) = (
        connect(&format!("{}/one", server.url())).await,
        connect(&server.url()).await,
    );
    conformance::run(one, RaceSize::new(2, 1)).await;
    assert_eq!(
        other
            .scan(&Scan {
                limit: 1,
                ..Scan::default()
            })
            .await
            .unwrap(),
        []
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified() {
    let [ours, stranger] = [Certificate::of("localhost"), Certificate::of("localhost")];
    let (file, key) = (
        ours.file().display().to_string(),
        ours.key_file().display().to_string(),
    );
    let server = start(&["--cert-file", &file, "--key-file", &key]).await;
    let url = format!("etcds://localhost:{}", server.address().port());
    let trusting = |certificate: &Certificate| {
        url.parse::<Address>()
            .unwrap()
            .with_root_certificate(certificate.pem().as_bytes())
            .unwrap()
    };

    // The cluster may still be without a leader.
    let connected = async {
        loop {
            match EtcdRegister::connect_to(trusting(&ours)).await {
                Ok(register) => return register,
                Err(error) => assert!(!error.to_string().contains("certificate verify"), "{error}"),
            }
        }
    };
    let register = within("an encrypted connection", Box::pin(connected)).await;
    conformance::run(register, RaceSize::new(2, 1)).await;

    let error = EtcdRegister::connect_to(trusting(&stranger))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::Unreachable, "{error}");
    assert_eq!(
        refusal::<Etcd>(&url).await.0,
        ConnectErrorKind::Unreachable,
        "the system does not trust it"
    );
}
