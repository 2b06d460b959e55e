//! The configuration of nginx in examples/nginx.conf, in front of the gateway: conditions, tags, signatures, waits and large bodies pass.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ifmatch_testbed::{Port, Program, Server, within};
use rustix::process::Signal;
use support::s3::S3;
use support::tls::Files;
use support::{Client, Gateway};

const EXAMPLE: &str = include_str!("../../examples/nginx.conf");
const TOKEN: (&str, &str) = ("authorization", "Bearer 0123456789abcdef");
const KEY: &str = "a2V5LWZvci10ZXN0cy1vbmx5LTMyLWJ5dGVzLWxvbmchISE=";

/// Returns the example with the addresses and files of this test. nginx listens with TLS, at a port that is still missing, and,
/// for clients that speak none, without.
fn configuration(files: &Files, blobs: SocketAddr, s3: SocketAddr, plain: &Port) -> String {
    let listen = format!(
        "listen 127.0.0.1:@PORT@ ssl http2; listen {};",
        plain.address()
    );
    let file = |name: &str| files.path(name).to_str().unwrap().to_owned();
    let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {name};"));
    [
        (
            "events {}",
            "pid nginx.pid; daemon off; events {}".to_owned(),
        ),
        (
            "http {",
            format!("http {{ access_log off; {}", own.concat()),
        ),
        ("listen 443 ssl http2;", listen),
        ("127.0.0.1:10000", blobs.to_string()),
        ("127.0.0.1:10003", s3.to_string()),
        ("/etc/nginx/blobs.example.pem", file("cert.pem")),
        ("/etc/nginx/blobs.example.key", file("key.pem")),
    ]
    .into_iter()
    .fold(EXAMPLE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is missing in the example");
        text.replace(from, &to)
    })
}

/// Starts nginx, and returns its address with TLS and its port without TLS.
async fn nginx(files: &Files, blobs: SocketAddr, s3: SocketAddr) -> (Server, SocketAddr, Port) {
    let plain = Port::claim();
    let text = configuration(files, blobs, s3, &plain);
    let mut program = Program::new(
        "nginx",
        "nginx-light",
        ("https://", ""),
        move |port, folder| {
            fs::write(
                folder.join("nginx.conf"),
                text.replace("@PORT@", &port.to_string()),
            )
            .unwrap();
            let folder = folder.to_str().unwrap();
            ["-p", folder, "-e", "stderr", "-c", "nginx.conf"]
                .map(str::to_owned)
                .to_vec()
        },
    );
    // Its workers end with it.
    program.end = Signal::TERM;
    let server = Server::start(program).await;
    let with_tls = server.address();
    (server, with_tls, plain)
}

#[tokio::test]
async fn conditions_signatures_waits_and_large_bodies_pass_through_nginx() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let account = format!("team:{KEY}");
    let mut gateway = Gateway::start(
        [
            "serve",
            "--write-token",
            "0123456789abcdef",
            "--accounts",
            &account,
            "--listen-s3",
            "127.0.0.1:0",
            "--data",
        ]
        .map(AsRef::as_ref)
        .into_iter()
        .chain([data.as_os_str()]),
    );
    let s3 = gateway.s3();
    let files = Files::of("blobs.example");
    let (_nginx, tls, plain) = nginx(&files, gateway.address(), s3).await;

    let client = Client::new(plain.address());
    let at = |fields: &[(&'static str, &'static str)]| {
        [fields, &[TOKEN, ("host", "blobs.example")]].concat()
    };
    let create = at(&[("if-none-match", "*")]);
    let first = client
        .put("/docs/a", &create, "one ".repeat(1_000))
        .await
        .expect(201)
        .etag()
        .to_owned();
    client.put("/docs/a", &create, "two").await.expect(412);
    let named = |name, tag| [&[(name, tag)][..], &at(&[("accept-encoding", "gzip")])].concat();
    let read = client
        .get("/docs/a", &named("if-none-match", "\"other\""))
        .await
        .expect(200);
    assert_eq!(
        read.etag(),
        first,
        "nginx compresses, or makes the tag weak"
    );
    client
        .get("/docs/a", &named("if-none-match", &first))
        .await
        .expect(304);

    let (reader, tag) = (client.clone(), first.clone());
    let fields = at(&[("prefer", "wait=60")]);
    let poll = tokio::spawn(async move {
        reader
            .get(
                "/docs/a",
                &[&fields[..], &[("if-none-match", &tag)]].concat(),
            )
            .await
    });
    let direct = Client::new(gateway.address());
    within("a read that waits", async {
        while !direct
            .get("/-/metrics", &[TOKEN])
            .await
            .expect(200)
            .text()
            .contains("ifmatch_waits 1\n")
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let written = client
        .put("/docs/a", &named("if-match", &first), "two")
        .await
        .expect(200);
    let polled = within("the wait's end", poll).await.unwrap().expect(200);
    assert_eq!((polled.text(), polled.etag()), ("two", written.etag()));
    client
        .put("/docs/a", &named("if-match", &first), "three")
        .await
        .expect(412);

    let large = vec![b'x'; 20 << 20];
    client
        .put("/docs/large", &at(&[]), large.clone())
        .await
        .expect(201);
    assert!(
        client.get("/docs/large", &at(&[])).await.expect(200).body == large,
        "the large blob is intact"
    );
    client.get("/-/health", &at(&[])).await.expect(404);

    // The signature covers the name that the client used.
    let signed = S3::new(plain.address(), "team", KEY).at_host("s3.example");
    let object = signed.get("/docs/a", &[]).await.expect(200);
    assert_eq!((object.text(), object.etag()), ("two", written.etag()));
    signed
        .put("/docs/a", &[("if-none-match", "*")], "three")
        .await
        .expect(412);

    let stream = Files::connect_at(&[&files], tls, "blobs.example", &["h2"]).await;
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .method(Method::GET)
        .uri("https://blobs.example/docs/a")
        .header(TOKEN.0, TOKEN.1);
    let response = client
        .send_request(request.body(Full::<bytes::Bytes>::default()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["etag"], written.etag());
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "two"
    );
}
