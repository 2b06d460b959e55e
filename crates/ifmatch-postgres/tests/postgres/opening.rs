//! Servers, schemas and passwords that are refused, and what the messages say.

use ifmatch_postgres::{OpenError, OpenErrorKind, PostgresRegister, migrate};

use crate::server::Server;

async fn refused(url: &str) -> OpenError {
    PostgresRegister::connect(url).await.expect_err("it must be refused")
}

#[tokio::test]
async fn a_missing_schema_is_refused_until_it_is_migrated() {
    let server = Server::start_with(&[]).await;
    let error = refused(&server.url()).await;
    assert_eq!(error.kind(), OpenErrorKind::Schema);
    assert!(error.to_string().contains("ifmatch register migrate --register URL"), "{error}");
    let url = server.url();
    let (one, other) = tokio::join!(migrate(&url), migrate(&url));
    one.expect("a migration");
    other.expect("a concurrent migration");
    server.register().await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_not_migrated() {
    let server = Server::start().await;
    server.client().await.batch_execute("UPDATE ifmatch_schema SET version = 99").await.unwrap();
    for error in [refused(&server.url()).await, migrate(&server.url()).await.expect_err("it is newer")] {
        assert_eq!(error.kind(), OpenErrorKind::Schema);
        assert!(error.to_string().contains("upgrade ifmatch"), "{error}");
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_create_tables_can_connect() {
    let server = Server::start().await;
    let rights = "CREATE ROLE worker LOGIN; GRANT SELECT ON ifmatch_schema TO worker;
                  GRANT SELECT, INSERT, UPDATE, DELETE ON ifmatch_records TO worker; CREATE ROLE stranger LOGIN";
    server.client().await.batch_execute(rights).await.unwrap();
    let url = |user: &str| server.url().replace("postgres@", &format!("{user}@"));
    PostgresRegister::connect(&url("worker")).await.expect("it has all rights that it needs");
    let error = refused(&url("stranger")).await;
    assert_eq!(error.kind(), OpenErrorKind::Denied);
    assert!(error.to_string().contains("lacks rights"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let server = Server::start().await;
    let client = server.client().await;
    client.batch_execute("CREATE ROLE secured LOGIN SUPERUSER PASSWORD 'right'").await.unwrap();
    let hba = server.data().join("pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("host all secured all scram-sha-256\n{rules}")).unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let url = |password: &str| server.url().replace("postgres@", &format!("secured{password}@"));
    // The server reads its rules again some time after the call.
    while PostgresRegister::connect(&url(":wrongone")).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let error = refused(&url(":wrongone")).await;
    assert_eq!(error.kind(), OpenErrorKind::Denied);
    assert!(error.to_string().contains("PGPASSWORD") && !error.to_string().contains("wrongone"), "{error}");
    let error = refused(&url("")).await;
    assert_eq!(error.kind(), OpenErrorKind::Denied, "{error}");
    PostgresRegister::connect(&url(":right")).await.expect("the password is right");
}

#[tokio::test]
async fn a_server_that_loses_acknowledged_swaps_is_refused() {
    let server = Server::start_with(&["fsync=off"]).await;
    let error = refused(&server.url()).await;
    assert_eq!(error.kind(), OpenErrorKind::Unsuitable);
    assert!(error.to_string().contains("fsync = on"), "{error}");
}

#[tokio::test]
async fn a_standby_is_refused() {
    let mut server = Server::create(&[]);
    std::fs::write(server.data().join("standby.signal"), "").unwrap();
    server.run();
    server.until_ready().await;
    let error = refused(&server.url()).await;
    assert_eq!(error.kind(), OpenErrorKind::Unsuitable);
    assert!(error.to_string().contains("standby"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let server = Server::create(&[]);
    assert_eq!(refused(&server.url()).await.kind(), OpenErrorKind::Unreachable);
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let server = Server::start().await;
    let error = refused(&format!("{}?sslmode=verify-full", server.url())).await;
    assert_eq!(error.kind(), OpenErrorKind::Certificate);
    assert!(error.to_string().contains("sslmode=disable"), "{error}");
}

#[tokio::test]
async fn only_a_certificate_of_the_authority_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (ours, other) = (certificate(), certificate());
    let mut server = Server::create(&["ssl=on", "ssl_cert_file=tls.crt", "ssl_key_file=tls.key"]);
    server.write_as_owner("tls.crt", &ours.cert.pem());
    server.write_as_owner("tls.key", &ours.signing_key.serialize_pem());
    server.run();
    server.until_ready().await;
    migrate(&server.url()).await.unwrap();
    let url = |host: &str, name: &str, certificate: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        let file = folder.path().join(name);
        std::fs::write(&file, certificate.cert.pem()).unwrap();
        let options = format!("?sslmode=verify-full&sslrootcert={}", file.display());
        server.url().replace("127.0.0.1", host) + &options
    };
    PostgresRegister::connect(&url("localhost", "ours.pem", &ours)).await.expect("it is the server's");
    for wrong in [url("localhost", "other.pem", &other), url("127.0.0.1", "ours.pem", &ours)] {
        let error = refused(&wrong).await;
        assert_eq!(error.kind(), OpenErrorKind::Certificate, "{error}");
        assert!(error.to_string().contains("sslrootcert"), "{error}");
    }
}
