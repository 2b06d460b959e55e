//! The rows of the page for users of nginx.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ifmatch_testbed::{Program, Server};
use rustix::process::Signal;
use support::raw::exchange;
use support::tls::Files;
use support::{Gateway, eventually, run};

use super::{Origins, Request, Row, Side, get, route, rows};

const PAGE: &str = include_str!("../../../docs/howto/nginx.md");

/// Rows with tests of their own below, and one that Debian's nginx lacks.
const OTHERS: [(&str, &str); 6] = [
    ("`listen 80; return 301 https://…`", "needs TLS: below"),
    (
        "`ssl_certificate`, one for each `server`",
        "needs TLS: below",
    ),
    ("`nginx -t`, `nginx -s reload`", "commands: below"),
    (
        "`$upstream_cache_status`",
        "other names for the same: below",
    ),
    ("`stub_status`", "other metrics: below"),
    (
        "purging, health checks (NGINX Plus)",
        "Debian's nginx has neither; the proxy's are in proxy/endpoints.rs",
    ),
];

/// A site whose only location has these directives, in front of the first origin.
fn location(directives: &str) -> String {
    format!("server {{ listen @PORT@; location / {{ proxy_pass http://@A@; {directives} }} }}")
}

/// The configuration with these contents of its `http`.
fn configuration(http: &str) -> String {
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {name};"));
    // It would also turn off a log of the row.
    let log = if http.contains("access_log") {
        ""
    } else {
        "access_log off;"
    };
    format!(
        "pid nginx.pid; daemon off; worker_processes 1; events {{}}\nhttp {{ {log} {}\n\
         proxy_cache_path cache keys_zone=c:1m inactive=1h max_size=20m;\n{http}\n}}\n",
        folders.concat()
    )
}

async fn start(http: &str) -> Server {
    let text = configuration(http);
    let mut program = Program::new(
        "nginx",
        "nginx-light",
        ("http://", ""),
        move |port, folder| {
            let text = text.replace("@PORT@", &format!("127.0.0.1:{port}"));
            fs::write(folder.join("nginx.conf"), text).unwrap();
            arguments(folder, &[])
        },
    );
    // Its workers end with it.
    program.end = Signal::TERM;
    Server::start(program).await
}

fn arguments(folder: &Path, more: &[&str]) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let fixed = ["-p", folder, "-e", "stderr", "-c", "nginx.conf"];
    fixed
        .iter()
        .chain(more)
        .map(|argument| (*argument).to_owned())
        .collect()
}

/// Runs nginx in its folder until it exits.
fn nginx(folder: &Path, more: &[&str]) -> bool {
    Command::new("nginx")
        .args(arguments(folder, more))
        .status()
        .unwrap()
        .success()
}

async fn theirs(row: &Row) -> (Side, Server) {
    let (origins, folder) = (Origins::start(), tempfile::tempdir().unwrap());
    let server = start(&origins.fill(&row.theirs, folder.path())).await;
    (Side::of(server.address(), origins, folder), server)
}

#[tokio::test]
async fn each_row_for_nginx_has_the_same_outcomes_as_nginx() {
    let mut wrong = Vec::new();
    for row in &rows(include_str!("data/nginx.toml"), PAGE, &OTHERS) {
        let (mut side, _server) = theirs(row).await;
        wrong.extend(side.run("nginx", row));
        let (mut side, _gateway) = Side::ours(row);
        wrong.extend(side.run("ifmatch", row));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Both files of the page serve the same site.
#[tokio::test]
async fn the_example_has_the_same_outcomes_as_nginx() {
    let block = |language: &str| {
        let start = format!("\n```{language}\n");
        PAGE.split_once(&start)
            .expect("an example")
            .1
            .split_once("\n```\n")
            .unwrap()
            .0
    };
    let place = |text: &str| {
        text.replace("127.0.0.1:8000", "@A@")
            .replace("127.0.0.1:8001", "@B@")
    };
    let http = block("nginx")
        .split_once("http {\n")
        .unwrap()
        .1
        .strip_suffix("\n}")
        .unwrap();
    let row = Row {
        cell: "the example".to_owned(),
        theirs: place(http)
            .replace("listen 8080", "listen @PORT@")
            .replace("/var/cache/nginx", "site"),
        ours: place(block("toml")).replace("/var/cache/ifmatch", "@DIR@/ifmatch"),
        acts: "/x <- 200 -> 200 a1 /x\n\
               /x <- 200 -> 200 a1 /x\n\
               /gone <- 404 -> 404 a1 /gone\n\
               /gone <- 404 -> 404 a1 /gone\n\
               /images/cat.png <- 200 -> 200 b1 /cat.png\n\
               /images/cat.png <- 200 -> 200 b1 /cat.png\n\
               /account <- 200 | cache-control: max-age=600 -> 200 a1 /account\n\
               /account <- 200 | cache-control: max-age=600 -> 200 a2 /account\n\
               /broken <- close a -> 200 b1 /broken\n\
               other.example/x <- 200 -> 404"
            .to_owned(),
    };
    let (mut side, _server) = theirs(&row).await;
    let mut wrong = side.run("nginx", &row);
    let (mut side, _gateway) = Side::ours(&row);
    wrong.extend(side.run("ifmatch", &row));
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// One port redirects to TLS, and the other one has a certificate for each host.
#[tokio::test]
async fn certificates_and_the_redirection_to_them_are_as_in_nginx() {
    let files = [Files::of("shop.example"), Files::of("blog.example")];
    let file = |at: usize, name: &str| files[at].path(name).to_str().unwrap().to_owned();
    let site = |at: usize, host: &str| {
        format!(
            "server {{ listen @PORT@ ssl; server_name {host}; ssl_certificate {}; ssl_certificate_key {}; return 204; }}",
            file(at, "cert.pem"),
            file(at, "key.pem")
        )
    };
    let theirs = start(&[site(0, "shop.example"), site(1, "blog.example")].concat()).await;
    let redirecting =
        start("server { listen @PORT@; return 301 https://$host$request_uri; }").await;
    let list = |name: &str| format!("['{}', '{}']", file(0, name), file(1, name));
    let text = format!(
        "redirect-listen = '127.0.0.1:0'\ntls-cert = {}\ntls-key = {}\n[proxy]\nupstream = ['http://127.0.0.1:1']",
        list("cert.pem"),
        list("key.pem")
    );
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("proxy.toml");
    fs::write(&config, text).unwrap();
    let mut gateway = Gateway::start(["proxy", "--config", config.to_str().unwrap()]);
    for address in [theirs.address(), gateway.address()] {
        for (at, host) in ["shop.example", "blog.example"].into_iter().enumerate() {
            // Only the certificate of this host is trusted.
            drop(Files::connect_at(&[&files[at]], address, host, &["http/1.1"]).await);
        }
    }
    let plain = gateway
        .line_after("redirecting http://")
        .replace(" to https", "")
        .parse()
        .unwrap();
    let request = "GET /a?b HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n";
    let moved = exchange(redirecting.address(), request).expect(301);
    assert_eq!(moved.header("location"), "https://shop.example/a?b");
    // The method stays the same, and the port is the test's.
    let moved = exchange(plain, request).expect(308);
    assert_eq!(
        moved.header("location"),
        format!("https://shop.example:{}/a?b", gateway.address().port())
    );
}

#[tokio::test]
async fn a_configuration_is_checked_and_reloaded_as_by_nginx() {
    let origins = Origins::start();
    let folder = tempfile::tempdir().unwrap();
    let fill = |text: &str| origins.fill(text, folder.path());
    let outcome = |address, expected: &str| {
        eventually(expected, || {
            get("/", "200")
                .outcome(address)
                .starts_with(expected)
                .then_some(())
        });
    };
    let server = start(&fill(&location(""))).await;
    outcome(server.address(), "200 a");
    let theirs = server.folder().join("nginx.conf");
    let text = fs::read_to_string(&theirs).unwrap();
    fs::write(&theirs, text.replace("proxy_pass", "proxy_bypass")).unwrap();
    assert!(!nginx(server.folder(), &["-t"]) && !nginx(server.folder(), &["-s", "reload"]));
    outcome(server.address(), "200 a");
    fs::write(&theirs, text.replace(&fill("@A@"), &fill("@B@"))).unwrap();
    assert!(nginx(server.folder(), &["-t"]) && nginx(server.folder(), &["-s", "reload"]));
    outcome(server.address(), "200 b");

    let ours = folder.path().join("proxy.toml");
    let name = ours.to_str().unwrap();
    fs::write(&ours, fill(&route(""))).unwrap();
    let gateway = Gateway::start(["proxy", "--config", name]);
    let check = || run(["proxy", "--check", "--config", name]).status.success();
    outcome(gateway.address(), "200 a");
    fs::write(&ours, fill(&route("")).replace("upstream", "upstreams")).unwrap();
    assert!(!check());
    gateway.hang_up();
    eventually("a refused reload", || {
        gateway.stderr().contains("cannot reload").then_some(())
    });
    outcome(gateway.address(), "200 a");
    fs::write(&ours, fill(&route("").replace("@A@", "@B@"))).unwrap();
    assert!(check());
    gateway.hang_up();
    outcome(gateway.address(), "200 b");
}

/// The state of the cache and the counters have other names.
#[tokio::test]
async fn each_status_of_nginx_s_cache_has_one_here() {
    let origins = Origins::start();
    let folder = tempfile::tempdir().unwrap();
    let http = "server { listen @PORT@; location / { proxy_pass http://@A@; proxy_cache c; \
                add_header X-Cache $upstream_cache_status always; } location /status { stub_status; } }";
    let server = start(&origins.fill(http, folder.path())).await;
    let own = Origins::start();
    let file = folder.path().join("proxy.toml");
    fs::write(&file, own.fill(&route(""), folder.path())).unwrap();
    let gateway = Gateway::start(["proxy", "--config", file.to_str().unwrap()]);
    let first = "200 | cache-control: max-age=1";
    for (path, answer, theirs, ours) in [
        ("/", first, "MISS", "fwd=uri-miss"),
        ("/", first, "EXPIRED", "fwd=stale"),
        (
            "/b",
            "200 | cache-control: max-age=600",
            "MISS",
            "fwd=uri-miss",
        ),
        ("/b", "200", "HIT", "hit"),
    ] {
        if theirs == "EXPIRED" {
            thread::sleep(Duration::from_millis(2_100));
        }
        assert_eq!(
            get(path, answer).send(server.address()).header("x-cache"),
            theirs
        );
        let status = get(path, answer)
            .send(gateway.address())
            .header("cache-status")
            .to_owned();
        assert!(
            status.starts_with(&format!("ifmatch; {ours}")),
            "{theirs}: {status}"
        );
    }
    assert!(
        get("/status", "")
            .send(server.address())
            .expect(200)
            .text()
            .contains("Active connections")
    );
    let local = get("localhost/-/metrics", "");
    assert!(
        local
            .send(gateway.address())
            .expect(200)
            .text()
            .contains("ifmatch_connections")
    );
}

/// nginx compresses: it weakens the tag of the response, and answers a validation with the tag of the file. The response is confirmed
/// nevertheless, and keeps its own tag.
#[tokio::test]
async fn a_response_that_nginx_compresses_is_revalidated() {
    let text = "hello ".repeat(1_000);
    let http = "server { listen @PORT@; gzip on; gzip_vary on; gzip_proxied any; gzip_types text/plain; default_type text/plain; root @ROOT@; \
                add_header Cache-Control max-age=1; }";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), &text).unwrap();
    let http = format!("access_log @ROOT@/access.log combined; {http}")
        .replace("@ROOT@", folder.path().to_str().unwrap());
    let server = start(&http).await;
    let gateway = Gateway::start(["proxy", "--upstream", &server.url()]);
    let ask = |fields: &str| {
        Request {
            fields: fields.to_owned(),
            ..get("/a.txt", "")
        }
        .send(gateway.address())
        .expect(200)
    };
    let gzip = "accept-encoding: gzip\r\n";
    let first = ask(gzip);
    assert_eq!(first.header("content-encoding"), "gzip");
    assert!(first.etag().starts_with("W/"), "{first:?}");
    thread::sleep(Duration::from_millis(2_100));
    let second = ask(gzip);
    assert!(
        second.header("cache-status").contains("fwd-status=304"),
        "{second:?}"
    );
    assert_eq!(
        (
            second.etag(),
            second.header("content-encoding"),
            &second.body
        ),
        (first.etag(), "gzip", &first.body)
    );
    // The strong tag names the bytes before compression.
    let plain = ask("");
    assert_eq!(
        (plain.etag(), plain.text()),
        (first.etag().trim_start_matches("W/"), text.as_str())
    );
    let log = eventually("three requests in the log", || {
        let log = fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
        (log.lines().count() >= 3).then_some(log)
    });
    let statuses: Vec<_> = log
        .lines()
        .map(|line| line.split("\" ").nth(1).unwrap().split(' ').next().unwrap())
        .collect();
    assert_eq!(statuses[..2], ["200", "304"], "{log}");
}
