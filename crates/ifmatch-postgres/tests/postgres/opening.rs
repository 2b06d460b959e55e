//! Servers, schemas and passwords that are refused, and what the messages say.

use std::net::SocketAddr;

use ifmatch_postgres::{ConnectError, ConnectErrorKind, PostgresRegister, migrate, migrate_with};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{Key, Register};
use ifmatch_testbed::{Certificate, postgres, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::{Config, NoTls};

use crate::{client, connect, start};

async fn refused(url: &str) -> ConnectError {
    PostgresRegister::connect(url)
        .await
        .expect_err("it must be refused")
}

#[tokio::test]
async fn a_missing_schema_is_refused_until_it_is_migrated() {
    let server = postgres::start(&[]).await;
    let error = refused(&server.url()).await;
    assert_eq!(error.kind(), ConnectErrorKind::Schema);
    assert!(
        error
            .to_string()
            .contains("ifmatch register migrate --register URL"),
        "{error}"
    );
    assert!(
        error.to_string().contains("ifmatch_postgres::migrate"),
        "{error}"
    );
    let url = server.url();
    let (one, other) = tokio::join!(migrate(&url), migrate(&url));
    one.expect("a migration");
    other.expect("a concurrent migration");
    connect(&server).await;
}

/// A service with a pool has these settings, and its own TLS or none.
#[tokio::test(flavor = "multi_thread")]
async fn a_register_takes_the_settings_of_a_service() {
    let server = postgres::start(&[]).await;
    let settings: Config = server.url().parse().unwrap();
    let missing = PostgresRegister::connect_with(settings.clone(), NoTls)
        .await
        .expect_err("there are no tables");
    assert_eq!(missing.kind(), ConnectErrorKind::Schema);
    migrate_with(settings.clone(), NoTls)
        .await
        .expect("a migration");
    let register = PostgresRegister::connect_with(settings, NoTls)
        .await
        .expect("the tables are there");
    conformance::run(register, RaceSize::default()).await;
    let several: Config = "host=one,two user=postgres".parse().unwrap();
    let error = PostgresRegister::connect_with(several, NoTls)
        .await
        .expect_err("one may be a former primary");
    assert_eq!(error.kind(), ConnectErrorKind::Unsuitable);
}

#[tokio::test]
async fn a_migration_waits_for_a_slow_one() {
    let server = postgres::start(&[]).await;
    let other = client(&server).await;
    // The key of the lock that keeps migrations apart.
    other
        .batch_execute("SELECT pg_advisory_lock(x'69666d61746368'::bigint)")
        .await
        .unwrap();
    let url = server.url();
    let migration = tokio::spawn(async move { migrate(&url).await });
    // Longer than the session's lock_timeout.
    other
        .batch_execute("SELECT pg_sleep(2); SELECT pg_advisory_unlock_all()")
        .await
        .unwrap();
    migration
        .await
        .unwrap()
        .expect("the other migration has ended");
    connect(&server).await;
}

#[tokio::test]
async fn a_server_that_accepts_connections_and_no_more_is_unreachable() {
    let server = start().await;
    let error =
        refused(&server.url_at(losing_requests_about("ifmatch_schema", server.address()).await))
            .await;
    assert_eq!(error.kind(), ConnectErrorKind::Unreachable);
    assert!(error.to_string().contains("doesn't respond"), "{error}");
}

/// Starts a proxy that delivers nothing more to the server from the first request that contains the text.
async fn losing_requests_about(text: &'static str, server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) =
            TcpStream::connect(server).await.unwrap().into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
        let mut buffer = vec![0; 65_536];
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            if buffer[..read]
                .windows(text.len())
                .any(|part| part == text.as_bytes())
            {
                std::future::pending::<()>().await;
            }
            to_server.write_all(&buffer[..read]).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_not_migrated() {
    let server = start().await;
    let running = connect(&server).await;
    client(&server)
        .await
        .batch_execute("UPDATE ifmatch_schema SET version = 99")
        .await
        .unwrap();
    for error in [
        refused(&server.url()).await,
        migrate(&server.url()).await.expect_err("it is newer"),
    ] {
        assert_eq!(error.kind(), ConnectErrorKind::Schema);
        assert!(error.to_string().contains("upgrade ifmatch"), "{error}");
    }
    // A process that runs already uses the tables no more once its connections have ended.
    let end =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ifmatch'";
    client(&server).await.batch_execute(end).await.unwrap();
    let key = Key::new("key").unwrap();
    let mut errors = Vec::new();
    for _ in 0..20 {
        errors.extend(running.load(&key).await.err());
    }
    assert!(
        errors
            .last()
            .is_some_and(|last| last.to_string().contains("upgrade ifmatch")),
        "{errors:?}"
    );
    assert!(running.load(&key).await.is_err());
}

#[tokio::test]
async fn a_user_without_the_right_to_create_tables_can_connect() {
    let server = start().await;
    let rights = "CREATE ROLE worker LOGIN; GRANT SELECT ON ifmatch_schema TO worker;
                  GRANT SELECT, INSERT, UPDATE, DELETE ON ifmatch_records TO worker;
                  GRANT SELECT, UPDATE ON ifmatch_epoch TO worker; CREATE ROLE stranger LOGIN";
    client(&server).await.batch_execute(rights).await.unwrap();
    let url = |user: &str| server.url().replace("postgres@", &format!("{user}@"));
    PostgresRegister::connect(&url("worker"))
        .await
        .expect("it has all rights that it needs");
    let error = refused(&url("stranger")).await;
    assert_eq!(error.kind(), ConnectErrorKind::Denied);
    assert!(error.to_string().contains("lacks rights"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let server = start().await;
    let client = client(&server).await;
    client
        .batch_execute("CREATE ROLE secured LOGIN SUPERUSER PASSWORD 'right'")
        .await
        .unwrap();
    let hba = postgres::data(server.folder()).join("pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("host all secured all scram-sha-256\n{rules}")).unwrap();
    client
        .batch_execute("SELECT pg_reload_conf()")
        .await
        .unwrap();
    let url = |password: &str| {
        server
            .url()
            .replace("postgres@", &format!("secured{password}@"))
    };
    // The server reads its rules again some time after the call.
    let error = within("the password is checked", async {
        loop {
            if let Err(error) = PostgresRegister::connect(&url(":wrongone")).await {
                return error;
            }
        }
    })
    .await;
    assert_eq!(error.kind(), ConnectErrorKind::Denied);
    assert!(
        error.to_string().contains("PGPASSWORD") && !error.to_string().contains("wrongone"),
        "{error}"
    );
    let error = refused(&url("")).await;
    assert_eq!(error.kind(), ConnectErrorKind::Denied, "{error}");
    PostgresRegister::connect(&url(":right"))
        .await
        .expect("the password is right");
}

#[tokio::test]
async fn a_server_that_loses_acknowledged_swaps_is_refused() {
    let server = postgres::start(&["fsync=off"]).await;
    let error = refused(&server.url()).await;
    assert_eq!(error.kind(), ConnectErrorKind::Unsuitable);
    assert!(error.to_string().contains("fsync = on"), "{error}");
}

#[tokio::test]
async fn a_standby_is_refused() {
    let primary = start().await;
    let server = postgres::start_standby(primary.address(), &[]).await;
    let error = refused(&server.url()).await;
    assert_eq!(error.kind(), ConnectErrorKind::Unsuitable);
    assert!(error.to_string().contains("standby"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let server = start().await;
    let error = refused(&format!("{}?sslmode=verify-full", server.url())).await;
    assert_eq!(error.kind(), ConnectErrorKind::Certificate);
    assert!(error.to_string().contains("sslmode=disable"), "{error}");
}

#[tokio::test]
async fn only_a_certificate_of_the_authority_is_accepted() {
    let [ours, other] = [Certificate::of("localhost"), Certificate::of("localhost")];
    let (pem, key) = (
        ours.pem().to_owned(),
        std::fs::read_to_string(ours.key_file()).unwrap(),
    );
    let settings = ["ssl=on", "ssl_cert_file=tls.crt", "ssl_key_file=tls.key"];
    let server = postgres::start_with(&settings, move |data| {
        postgres::write_as_owner(data, "tls.crt", &pem);
        postgres::write_as_owner(data, "tls.key", &key);
    })
    .await;
    migrate(&server.url()).await.unwrap();
    let url = |host: &str, trusted: &Certificate| {
        let options = format!(
            "?sslmode=verify-full&sslrootcert={}",
            trusted.file().display()
        );
        server.url().replace("127.0.0.1", host) + &options
    };
    PostgresRegister::connect(&url("localhost", &ours))
        .await
        .expect("it is the server's");
    for wrong in [url("localhost", &other), url("127.0.0.1", &ours)] {
        let error = refused(&wrong).await;
        assert_eq!(error.kind(), ConnectErrorKind::Certificate, "{error}");
        assert!(error.to_string().contains("sslrootcert"), "{error}");
    }
}
