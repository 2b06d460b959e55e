//! The listener for tables.

use std::net::TcpListener;

use http::Method;
use support::azure::{Azure, DEVELOPMENT_ACCOUNT};
use support::{Client, Gateway, run};

use crate::serve;

const JSON: (&str, &str) = ("content-type", "application/json");
const PLAIN: (&str, &str) = ("accept", "application/json;odata=nometadata");

#[tokio::test]
async fn tables_are_served_alongside_blobs() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &["--listen-tables", "127.0.0.1:0"]);
    let tables = Azure::development(Client::new(gateway.tables()));
    tables.table(Method::POST, "/Tables", &[JSON, PLAIN], r#"{"TableName":"people"}"#).await.expect(201);
    let entity = r#"{"PartitionKey":"a","RowKey":"1","age":7}"#;
    tables.table(Method::POST, "/people", &[JSON, PLAIN], entity).await.expect(201);
    let path = "/people(PartitionKey='a',RowKey='1')";
    let read = tables.table(Method::GET, path, &[PLAIN], "").await.expect(200);
    assert_eq!(read.json()["age"], 7);
    let (old, seven) = (read.etag().to_owned(), r#"{"age":8}"#);
    tables.table(Method::PUT, path, &[JSON, ("if-match", &old)], seven).await.expect(204);
    let stale = tables.table(Method::PUT, path, &[JSON, ("if-match", &old)], seven).await.expect(412);
    assert!(stale.text().contains("UpdateConditionNotSatisfied"), "{}", stale.text());

    // Entities are not visible as blobs.
    let client = Client::new(gateway.address());
    assert_eq!(client.get("/", &[]).await.expect(200).json()["containers"], serde_json::json!([]));
    let end = gateway.stop();
    assert_eq!(end.status.code(), Some(0), "{end:#?}");
    assert!(end.stdout.contains("/devstoreaccount1;TableEndpoint="), "{}", end.stdout);
}

/// Tokens apply to the other listener only: requests to tables are signed.
#[tokio::test]
async fn unsigned_requests_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--listen-tables", "127.0.0.1:0", "--write-token", "w", "--accounts", DEVELOPMENT_ACCOUNT];
    let mut gateway = serve(folder.path(), &flags);
    let client = Client::new(gateway.tables());
    Azure::development(client.clone()).table(Method::GET, "/Tables", &[PLAIN], "").await.expect(200);
    let token = ("authorization", "Bearer w");
    for path in ["/", "/devstoreaccount1/Tables", "/devstoreaccount1/people()", "/docs/a", "/nobody/Tables"] {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE, Method::OPTIONS] {
            for headers in [&[][..], &[token], &[("x-ms-version", "2019-02-02")]] {
                let status = client.request(method.clone(), path, headers, "").await.status.as_u16();
                assert!((400..500).contains(&status), "{method} {path} {headers:?}: {status}");
            }
        }
    }
    client.get("/-/metrics", &[]).await.expect(401);
    client.get("/-/health", &[]).await.expect(200);
}

#[tokio::test]
async fn a_port_in_use_is_named_and_tables_can_be_disabled() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let end = run(["serve", "--store", "memory://", "--listen", "127.0.0.1:0", "--listen-tables", &address]);
    assert_eq!(end.status.code(), Some(1), "{end:#?}");
    let expected = format!("{address} is already in use");
    assert!(end.stderr.contains(&expected) && end.stderr.contains("--listen-tables off"), "{end:#?}");
    let gateway = Gateway::start(["serve", "--store", "memory://", "--listen-tables", "off"]);
    Client::new(gateway.address()).get("/", &[]).await.expect(200);
    refused("example.com:10002", "IP:PORT");
}

/// Another gateway has the default address. It may be one of this machine or of another test.
#[tokio::test]
async fn a_default_address_of_tables_in_use_leaves_the_blobs() {
    let _taken = TcpListener::bind("127.0.0.1:10002");
    let mut ifmatch = Gateway::command();
    ifmatch.env_remove("IFMATCH_LISTEN_TABLES").args(["serve", "--store", "memory://"]);
    let gateway = Gateway::launch(ifmatch);
    Client::new(gateway.address()).get("/", &[]).await.expect(200);
    let expected = "serving no tables: 127.0.0.1:10002 is already in use";
    assert!(gateway.stderr().contains(expected), "{}", gateway.stderr());
}

fn refused(value: &str, expected: &str) {
    let end = run(["serve", "--store", "memory://", "--listen-tables", value]);
    assert_eq!(end.status.code(), Some(2), "{end:#?}");
    assert!(end.stderr.contains(expected), "{end:#?}");
}
