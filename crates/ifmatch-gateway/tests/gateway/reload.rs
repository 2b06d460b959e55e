//! SIGHUP: other tokens and another certificate, without a lost request.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use support::raw::{Connection, exchange};
use support::tls::Files;
use support::{Answer, Gateway};

use crate::{NOT_RELOADED, RELOADED, eventually, hang_up};

/// A folder with a configuration and the files that it names.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn tokens(&self, tokens: &[&str]) {
        self.write("tokens", &tokens.join("\n"));
    }

    fn certificate(&self, files: &Files) {
        for name in ["cert.pem", "key.pem"] {
            fs::copy(files.path(name), self.path(name)).unwrap();
        }
    }

    /// Starts a gateway with the file `config`.
    fn start(&self, command: &str) -> Gateway {
        let mut ifmatch = Gateway::command();
        // They would override the file.
        ifmatch
            .env_remove("IFMATCH_LISTEN_TABLES")
            .env_remove("IFMATCH_LISTEN_S3");
        ifmatch.args([command, "--config"]).arg(self.path("config"));
        Gateway::launch(ifmatch)
    }
}

fn request(method: &str, path: &str, token: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn read(gateway: &Gateway, path: &str, token: &str) -> Answer {
    exchange(gateway.address(), request("GET", path, token, ""))
}

/// Opens a connection that trusts any of these certificates.
async fn connect(files: &[&Files], gateway: &Gateway) -> SendRequest<Full<Bytes>> {
    let stream = Files::connect_to_any(files, gateway, &["http/1.1"]).await;
    let (client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn put(client: &mut SendRequest<Full<Bytes>>, name: &str, token: &str) -> StatusCode {
    client.ready().await.unwrap();
    let request = Request::put(format!("/c/{name}")).header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {token}"));
    client
        .send_request(
            request
                .body(Full::new(Bytes::from_static(b"hello")))
                .unwrap(),
        )
        .await
        .unwrap()
        .status()
}

/// Writes until `done`, over connections of ten requests each. Returns the number of writes.
async fn write_until(done: &AtomicBool, files: &[&Files], gateway: &Gateway, name: &str) -> u32 {
    let mut writes = 0;
    while !done.load(Ordering::SeqCst) {
        let mut client = connect(files, gateway).await;
        for _ in 0..10 {
            let status = put(&mut client, name, "for-everyone").await;
            assert!(status.is_success(), "write {writes} of {name}: {status}");
            writes += 1;
        }
    }
    writes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_while_tokens_and_certificates_are_exchanged() {
    let site = Site::new();
    let files = [Files::new(), Files::new()];
    let both = [&files[0], &files[1]];
    let configure = |round: usize| {
        site.tokens(&["for-everyone", ["even", "odd"][round % 2]]);
        site.certificate(&files[round % 2]);
    };
    configure(0);
    let [tokens, cert, key] = ["tokens", "cert.pem", "key.pem"].map(|name| site.text(name));
    let flags = [
        "--write-token-file",
        &tokens,
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ];
    let gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(&flags));
    let done = AtomicBool::new(false);
    let exchange_all = async {
        for round in 1..=20 {
            configure(round);
            tokio::task::block_in_place(|| hang_up(&gateway, RELOADED));
            // Presents the new certificate, and no other.
            let mut client = connect(&[&files[round % 2]], &gateway).await;
            assert!(
                put(&mut client, "own", ["even", "odd"][round % 2])
                    .await
                    .is_success(),
                "{round}"
            );
            assert_eq!(
                put(&mut client, "own", ["odd", "even"][round % 2]).await,
                401,
                "{round}"
            );
        }
        done.store(true, Ordering::SeqCst);
    };
    let writer = |name| write_until(&done, &both, &gateway, name);
    let ((), a, b, c) = tokio::join!(exchange_all, writer("a"), writer("b"), writer("c"));
    assert!(a.min(b).min(c) >= 10, "{a}, {b}, {c}");
}

#[test]
fn open_connections_need_a_current_token_and_requests_in_progress_do_not() {
    let site = Site::new();
    site.tokens(&["former"]);
    let gateway = Gateway::start([
        "serve",
        "--store",
        "memory://",
        "--write-token-file",
        &site.text("tokens"),
    ]);
    let [mut idle, mut slow] = [(); 2].map(|()| Connection::open(gateway.address()));
    idle.send(request("PUT", "/c/a", "former", "one"));
    idle.answer().expect(201);
    slow.send(request("PUT", "/c/slow", "former", "half").replace("Length: 4", "Length: 8"));
    // A request is in progress once its first bytes have been read.
    eventually("both requests are counted", || {
        let metrics = read(&gateway, "/-/metrics", "former");
        metrics
            .text()
            .lines()
            .any(|line| line == "ifmatch_requests_in_flight 2")
            .then_some(())
    });
    site.tokens(&["current"]);
    hang_up(&gateway, RELOADED);
    idle.send(request("GET", "/c/a", "former", ""));
    idle.answer().expect(401);
    idle.send(request("GET", "/c/a", "current", ""));
    idle.answer().expect(200);
    slow.send("done");
    slow.answer().expect(201);
}

#[test]
fn tokens_of_the_file_are_exchanged_for_both_commands() {
    let site = Site::new();
    for (command, rest) in [
        (
            "serve",
            "store = 'memory://'\nlisten-tables = 'off'\nlisten-s3 = 'off'",
        ),
        ("proxy", "[proxy]\nupstream = ['http://127.0.0.1:9']"),
    ] {
        let config =
            |token: &str| format!("listen = '127.0.0.1:0'\nread-token = ['{token}']\n{rest}\n");
        site.write("config", &config("former"));
        let gateway = site.start(command);
        read(&gateway, "/-/metrics", "former").expect(200);
        site.write("config", &config("current"));
        hang_up(&gateway, RELOADED);
        read(&gateway, "/-/metrics", "former").expect(401);
        read(&gateway, "/-/metrics", "current").expect(200);
    }
}

#[test]
fn the_log_names_the_settings_that_a_reload_does_not_change() {
    let site = Site::new();
    let config = |changed: &str, ttl: &str| {
        let proxy = format!(
            "[proxy]\nupstream = ['http://127.0.0.1:9']\ndefault-ttl = '{ttl}'\nconnect-timeout = '{ttl}'"
        );
        site.write(
            "config",
            &format!("listen = '127.0.0.1:0'\n{changed}\n{proxy}\n"),
        );
    };
    config("max-connections = 301", "1s");
    let gateway = site.start("proxy");
    hang_up(&gateway, RELOADED);
    assert!(
        !gateway.stderr().contains("a reload doesn't change"),
        "{}",
        gateway.stderr()
    );
    config("max-connections = 300", "2s");
    hang_up(&gateway, RELOADED);
    let expected = "a reload doesn't change --default-ttl, --max-connections. Restart to apply the new values.";
    assert!(gateway.stderr().contains(expected), "{}", gateway.stderr());
}

/// The settings without a console on the network would allow access without a token, and the console is still there.
#[test]
fn a_reload_does_not_open_a_console_that_others_can_reach() {
    let site = Site::new();
    let config = |settings: &str| {
        let proxy = "[proxy]\nupstream = ['http://127.0.0.1:9']";
        site.write(
            "config",
            &format!("listen = '127.0.0.1:0'\n{settings}\n{proxy}\n"),
        );
    };
    config("console = '0.0.0.0:0'\nwrite-token = ['correct-horse-battery-staple']");
    let mut command = Gateway::command();
    command
        .env_remove("IFMATCH_CONSOLE")
        .args(["proxy", "--config"])
        .arg(site.path("config"));
    let mut gateway = Gateway::launch(command);
    let console = gateway.line_after("console on ");
    let address = console
        .trim()
        .trim_start_matches("http://")
        .replace("0.0.0.0", "127.0.0.1")
        .parse()
        .unwrap();
    let status = || exchange(address, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").status;
    let before = status();
    assert_ne!(before, 200);
    for changed in ["console = 'off'", "console = '127.0.0.1:0'"] {
        config(changed);
        hang_up(&gateway, NOT_RELOADED);
        assert_eq!(status(), before, "{changed}");
    }
}

/// Each of these configurations has another token, which must not apply.
#[test]
fn an_unusable_configuration_changes_nothing() {
    let site = Site::new();
    let files = Files::new();
    site.certificate(&files);
    let [tokens, cert, key] = ["tokens", "cert.pem", "key.pem"].map(|name| site.text(name));
    let write = |lines: &str| site.write("config", &format!("store = 'memory://'\n{lines}\n"));
    let usual = format!(
        "listen = '127.0.0.1:0'\nlisten-tables = 'off'\nlisten-s3 = 'off'\nwrite-token-file = '{tokens}'"
    );
    site.tokens(&["former"]);
    write(&usual);
    let gateway = site.start("serve");
    site.tokens(&["other"]);
    for (lines, reason) in [
        (format!("{usual}\nunknown = 1"), "unknown setting"),
        (
            format!("{usual}\ntls-cert = '{cert}'\ntls-key = '{key}'"),
            "SIGHUP can't switch TLS on",
        ),
        // Safe without tokens, but the gateway would still listen at the former address.
        (
            "listen = '127.0.0.2:0'\nlisten-tables = 'off'\nlisten-s3 = 'off'".to_owned(),
            "SIGHUP can't change listen addresses",
        ),
        (
            "listen = '127.0.0.1:0'\nlisten-tables = '127.0.0.1:0'\nlisten-s3 = 'off'".to_owned(),
            "SIGHUP can't change --listen-tables",
        ),
        (
            "listen = '127.0.0.1:0'\nlisten-tables = 'off'\nlisten-s3 = '127.0.0.1:0'".to_owned(),
            "SIGHUP can't change --listen-s3",
        ),
        (
            format!(
                "listen = '127.0.0.1:0'\nwrite-token-file = '{}'",
                site.text("missing")
            ),
            "can't read --write-token-file",
        ),
    ] {
        write(&lines);
        hang_up(&gateway, NOT_RELOADED);
        assert!(
            gateway.stderr().contains(reason),
            "{reason} is missing in\n{}",
            gateway.stderr()
        );
        read(&gateway, "/", "former").expect(200);
        read(&gateway, "/", "other").expect(401);
        exchange(gateway.address(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect(401);
    }
    write(&usual);
    hang_up(&gateway, RELOADED);
    read(&gateway, "/", "other").expect(200);
}

/// The gateway would look protected, and continue to accept requests signed with a key that the settings exclude.
#[test]
fn a_reload_leaves_no_account_that_the_settings_exclude() {
    let site = Site::new();
    let write = |lines: &str| {
        site.write(
            "config",
            &format!(
                "listen = '127.0.0.1:0'\nlisten-tables = 'off'\nlisten-s3 = 'off'\nstore = 'memory://'\n{lines}\n"
            ),
        );
    };
    let account = |key: &str| format!("[[accounts]]\nname = 'one'\nkey = '{key}'");
    let token = "write-token = ['0123456789abcdef']".to_owned();
    for (before, after) in [
        (String::new(), token.clone()),
        (token, String::new()),
        (account("c2VjcmV0"), String::new()),
        (account("c2VjcmV0"), account("YW5vdGhlcg==")),
    ] {
        write(&before);
        let gateway = site.start("serve");
        let status = || exchange(gateway.address(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n").status;
        let unchanged = status();
        write(&after);
        hang_up(&gateway, NOT_RELOADED);
        assert!(
            gateway.stderr().contains("SIGHUP can't change accounts"),
            "{before} {after}"
        );
        assert_eq!(status(), unchanged, "{before} {after}");
    }
}

#[tokio::test]
async fn an_unusable_certificate_leaves_the_tokens() {
    let site = Site::new();
    let files = Files::new();
    site.certificate(&files);
    site.tokens(&["former"]);
    let [tokens, cert, key] = ["tokens", "cert.pem", "key.pem"].map(|name| site.text(name));
    let flags = [
        "--write-token-file",
        &tokens,
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ];
    let gateway = Gateway::start(["serve", "--store", "memory://"].iter().chain(&flags));
    site.tokens(&["other"]);
    fs::copy(files.path("other.pem"), site.path("key.pem")).unwrap();
    hang_up(&gateway, NOT_RELOADED);
    let mut client = connect(&[&files], &gateway).await;
    assert_eq!(put(&mut client, "a", "former").await, 201);
    assert_eq!(put(&mut client, "a", "other").await, 401);
}
