//! Listeners, also those of tables: their addresses and settings.

use std::net::{SocketAddr, TcpListener};

use http::Method;
use support::azure::{Azure, DEVELOPMENT_ACCOUNT};
use support::raw::{Connection, exchange};
use support::tls::Files;
use support::{Client, Gateway, run};

use crate::get;

/// Sends a request without a body, and returns the status.
fn send(address: SocketAddr, method: &str, path: &str) -> u16 {
    exchange(
        address,
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    )
    .status
    .as_u16()
}

/// Returns the address in a line of the banner.
fn address(line: &str) -> SocketAddr {
    let line = line.trim_end_matches("/-/").trim_end_matches(" to https");
    line.split_once("://").unwrap().1.parse().unwrap()
}

#[test]
fn all_addresses_serve_the_site() {
    let mut gateway = Gateway::on_folder(&["--listen", "127.0.0.1:0,127.0.0.2:0"]);
    let second = address(&gateway.line_after("listening on "));
    assert_eq!(second.ip().to_string(), "127.0.0.2");
    exchange(
        second,
        "PUT /c/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
    )
    .expect(201);
    assert_eq!(
        exchange(gateway.address(), get("/c/a")).expect(200).text(),
        "hello"
    );
}

#[test]
fn endpoints_leave_the_site_for_a_listener_of_their_own() {
    let origin = Gateway::start([
        "serve",
        "--store",
        "memory://",
        "--write-token",
        "0123456789abcdef",
    ]);
    let upstream = format!("http://{}", origin.address());
    for command in [
        &["serve", "--store", "memory://"][..],
        &["proxy", "--upstream", &upstream],
    ] {
        let flags = ["--admin-listen", "127.0.0.1:0"];
        let mut gateway = Gateway::start(command.iter().chain(&flags));
        let (site, admin) = (
            gateway.address(),
            address(&gateway.line_after("endpoints on ")),
        );
        for path in ["/-/health", "/-/ready", "/-/metrics"] {
            assert_eq!(send(admin, "GET", path), 200, "{command:?} {path}");
        }
        assert_eq!(send(admin, "GET", "/c/a"), 404, "{command:?}");
        assert_eq!(send(admin, "PUT", "/c/a"), 404, "{command:?}");
        let is_proxy = command[0] == "proxy";
        // The origin's own endpoints are reachable by the proxy, and want the origin's token.
        assert_eq!(
            send(site, "GET", "/-/metrics"),
            if is_proxy { 401 } else { 404 },
            "{command:?}"
        );
        assert_eq!(
            send(site, "GET", "/-/health"),
            if is_proxy { 200 } else { 404 },
            "{command:?}"
        );
        if is_proxy {
            assert_eq!(send(admin, "PURGE", "/c/a"), 200);
            let purge = exchange(admin, "PURGE /c/a HTTP/1.1\r\nHost: example.com\r\n\r\n");
            assert_eq!(purge.expect(200).json()["purged"], 0);
            assert_eq!(
                send(site, "PURGE", "/c/a"),
                401,
                "an ordinary request to the origin"
            );
            assert_eq!(
                send(site, "DELETE", "/-/cache?prefix="),
                404,
                "the origin has no cache"
            );
        }
        // Pages of other hosts that resolve to this machine.
        exchange(
            admin,
            "GET /-/metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        )
        .expect(421);
    }
}

#[test]
fn listeners_of_tables_and_s3_serve_the_endpoints_unless_they_have_a_listener_of_their_own() {
    for (flags, expected) in [
        (&[][..], &[200][..]),
        (&["--admin-listen", "127.0.0.1:0"], &[400, 404]),
    ] {
        let all = [
            &[
                "--listen-tables",
                "127.0.0.1:0",
                "--listen-s3",
                "127.0.0.1:0",
            ],
            flags,
        ]
        .concat();
        let mut gateway = Gateway::on_folder(&all);
        for address in [gateway.tables(), gateway.s3()] {
            for path in ["/-/metrics", "/-/leases"] {
                let status = send(address, "GET", path);
                assert!(expected.contains(&status), "{address} {path}: {status}");
            }
        }
    }
}

/// Clients of the site hold all connections, with requests whose bodies don't arrive.
#[test]
fn an_operator_gets_through_while_all_connections_are_taken() {
    let flags = [
        "--max-connections",
        "1",
        "--admin-listen",
        "127.0.0.1:0",
        "--console",
        "127.0.0.1:0",
    ];
    let mut gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(&flags));
    let admin = address(&gateway.line_after("endpoints on "));
    let console = address(&gateway.line_after("console on "));
    let mut slow = Connection::open(gateway.address());
    slow.send("PUT /c/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n1");
    let metrics = || {
        exchange(admin, get("/-/metrics"))
            .expect(200)
            .text()
            .to_owned()
    };
    crate::eventually("the request holds the connection", || {
        metrics()
            .contains("ifmatch_requests_in_flight 2")
            .then_some(())
    });
    // One more connection of this client to the site is refused.
    assert!(Connection::open(gateway.address()).rest().is_empty());
    assert_eq!(send(admin, "GET", "/-/ready"), 200);
    assert_eq!(send(console, "GET", "/"), 200);
    assert!(
        metrics().contains("ifmatch_turned_away_total{what=\"connection\"} 1"),
        "{}",
        metrics()
    );
    slow.send("2");
    slow.answer().expect(201);
}

#[test]
fn endpoints_beyond_loopback_need_a_token() {
    for command in [
        &["serve", "--store", "memory://"][..],
        &["proxy", "--upstream", "http://127.0.0.1:9"],
    ] {
        if command[0] == "serve" {
            let end = run(command.iter().chain(&["--admin-listen", "0.0.0.0:0"]));
            assert!(
                end.status.code() == Some(2) && end.stderr.contains("--write-token-file"),
                "{end:#?}"
            );
        }
        let short =
            run(command
                .iter()
                .chain(&["--admin-listen", "0.0.0.0:0", "--read-token", "short"]));
        assert!(
            short.status.code() == Some(2) && short.stderr.contains("can be guessed"),
            "{short:#?}"
        );
        let long = [
            "--admin-listen",
            "0.0.0.0:0",
            "--read-token",
            "0123456789abcdef",
        ];
        Gateway::start(command.iter().chain(&long)).line_after("endpoints on ");
    }
    let mut open = Gateway::start([
        "proxy",
        "--upstream",
        "http://127.0.0.1:9",
        "--admin-listen",
        "0.0.0.0:0",
    ]);
    let admin = address(&open.line_after("endpoints on "));
    assert_eq!(
        send(([127, 0, 0, 1], admin.port()).into(), "GET", "/-/metrics"),
        401
    );
}

#[test]
fn plain_http_is_redirected_to_tls() {
    let files = Files::new();
    let mut flags = files.flags("cert.pem", "key.pem");
    flags.extend(["--redirect-listen", "127.0.0.1:0"].map(str::to_owned));
    let mut gateway = Gateway::start(flags);
    let (port, plain) = (
        gateway.address().port(),
        address(&gateway.line_after("redirecting ")),
    );
    for (method, path) in [
        ("GET", "/c/a?b=c"),
        ("POST", "/-/metrics"),
        ("GET", "//evil.example"),
    ] {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 0\r\n\r\n");
        let moved = exchange(plain, request).expect(308);
        assert_eq!(
            moved.header("location"),
            format!("https://a.example:{port}{path}")
        );
    }
    exchange(plain, "GET / HTTP/1.1\r\nHost: user@evil.example\r\n\r\n").expect(400);
    let end = run([
        "serve",
        "--store",
        "memory://",
        "--redirect-listen",
        "127.0.0.1:0",
    ]);
    assert!(
        end.status.code() == Some(2) && end.stderr.contains("--tls-cert"),
        "{end:#?}"
    );
}

const JSON: (&str, &str) = ("content-type", "application/json");
const NO_METADATA: (&str, &str) = ("accept", "application/json;odata=nometadata");

#[tokio::test]
async fn tables_are_served_alongside_blobs() {
    let mut gateway = Gateway::on_folder(&["--listen-tables", "127.0.0.1:0"]);
    let tables = Azure::development(Client::new(gateway.tables()));
    tables
        .table(
            Method::POST,
            "/Tables",
            &[JSON, NO_METADATA],
            r#"{"TableName":"people"}"#,
        )
        .await
        .expect(201);
    let entity = r#"{"PartitionKey":"a","RowKey":"1","age":7}"#;
    tables
        .table(Method::POST, "/people", &[JSON, NO_METADATA], entity)
        .await
        .expect(201);
    let path = "/people(PartitionKey='a',RowKey='1')";
    let read = tables
        .table(Method::GET, path, &[NO_METADATA], "")
        .await
        .expect(200);
    assert_eq!(read.json()["age"], 7);
    let (old, eight) = (read.etag().to_owned(), r#"{"age":8}"#);
    tables
        .table(Method::PUT, path, &[JSON, ("if-match", &old)], eight)
        .await
        .expect(204);
    let stale = tables
        .table(Method::PUT, path, &[JSON, ("if-match", &old)], eight)
        .await
        .expect(412);
    assert!(
        stale.text().contains("UpdateConditionNotSatisfied"),
        "{}",
        stale.text()
    );

    // Entities aren't visible as blobs.
    let client = Client::new(gateway.address());
    assert_eq!(
        client.get("/", &[]).await.expect(200).json()["containers"],
        serde_json::json!([])
    );
    let end = gateway.stop();
    assert_eq!(end.status.code(), Some(0), "{end:#?}");
    assert!(
        end.stdout.contains("/devstoreaccount1;TableEndpoint="),
        "{}",
        end.stdout
    );
}

/// Requests to tables are signed. A token doesn't open them; it guards the endpoints there, too.
#[tokio::test]
async fn unsigned_requests_for_tables_are_rejected() {
    let flags = [
        "--listen-tables",
        "127.0.0.1:0",
        "--write-token",
        "w",
        "--accounts",
        DEVELOPMENT_ACCOUNT,
    ];
    let mut gateway = Gateway::on_folder(&flags);
    let client = Client::new(gateway.tables());
    Azure::development(client.clone())
        .table(Method::GET, "/Tables", &[NO_METADATA], "")
        .await
        .expect(200);
    let token = ("authorization", "Bearer w");
    for path in [
        "/",
        "/devstoreaccount1/Tables",
        "/devstoreaccount1/people()",
        "/docs/a",
        "/nobody/Tables",
    ] {
        for method in [
            Method::GET,
            Method::HEAD,
            Method::PUT,
            Method::POST,
            Method::DELETE,
            Method::OPTIONS,
        ] {
            for headers in [&[][..], &[token], &[("x-ms-version", "2019-02-02")]] {
                let status = client
                    .request(method.clone(), path, headers, "")
                    .await
                    .status
                    .as_u16();
                assert!(
                    (400..500).contains(&status),
                    "{method} {path} {headers:?}: {status}"
                );
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
    let end = run([
        "serve",
        "--store",
        "memory://",
        "--listen",
        "127.0.0.1:0",
        "--listen-tables",
        &address,
    ]);
    assert_eq!(end.status.code(), Some(1), "{end:#?}");
    let expected = format!("{address} is already in use");
    assert!(
        end.stderr.contains(&expected) && end.stderr.contains("--listen-tables off"),
        "{end:#?}"
    );
    let mut ifmatch = Gateway::command();
    ifmatch.env("IFMATCH_LISTEN_TABLES", &address);
    ifmatch.args(["serve", "--store", "memory://", "--listen", "127.0.0.1:0"]);
    ifmatch.args(["--listen-tables", "off"]);
    let gateway = Gateway::launch(ifmatch);
    Client::new(gateway.address())
        .get("/", &[])
        .await
        .expect(200);
    let end = run([
        "serve",
        "--store",
        "memory://",
        "--listen-tables",
        "example.com:10002",
    ]);
    assert!(
        end.status.code() == Some(2) && end.stderr.contains("IP:PORT"),
        "{end:#?}"
    );
}

/// Another gateway has the default address. It may be one of this machine or of another test.
#[tokio::test]
async fn a_default_address_of_tables_in_use_leaves_the_blobs() {
    let _taken = TcpListener::bind("127.0.0.1:10002");
    let mut ifmatch = Gateway::command();
    ifmatch
        .env_remove("IFMATCH_LISTEN_TABLES")
        .args(["serve", "--store", "memory://"]);
    let gateway = Gateway::launch(ifmatch);
    Client::new(gateway.address())
        .get("/", &[])
        .await
        .expect(200);
    let expected = "tables not started. 127.0.0.1:10002 is already in use";
    assert!(gateway.stderr().contains(expected), "{}", gateway.stderr());
}
