//! The rows of the page for users of nginx.

use std::fs;
use std::path::Path;
use std::process::Command;

use ifmatch_testbed::{Program, Server};
use rustix::process::Signal;
use support::raw::exchange;
use support::{Gateway, run};

use super::{Act, Origins, Request, Row, Side, get, require_all, route, twice};
use crate::eventually;
use crate::tls::Files;

const PAGE: &str = include_str!("../../../docs/howto/nginx.md");

/// Rows with tests of their own below, and one that Debian's nginx lacks.
const OTHERS: [(&str, &str); 6] = [
    ("`listen 80; return 301 https://…`", "needs TLS: below"),
    ("`ssl_certificate`, one for each `server`", "needs TLS: below"),
    ("`nginx -t`, `nginx -s reload`", "commands: below"),
    ("`$upstream_cache_status`", "other names for the same: below"),
    ("`stub_status`", "other metrics: below"),
    ("purging, health checks (NGINX Plus)", "Debian's nginx has neither; the proxy's are in proxy/endpoints.rs"),
];

/// A site whose only location has these directives, in front of the first origin.
fn location(directives: &str) -> String {
    format!("server {{ listen @PORT@; location / {{ proxy_pass http://@A@; {directives} }} }}")
}

/// The same with a cache.
fn cached(directives: &str) -> String {
    location(&format!("proxy_cache c; {directives}"))
}

/// A site for all requests to `app`, an upstream with these servers.
fn app(servers: &str) -> String {
    format!("upstream app {{ {servers} }} server {{ listen @PORT@; location / {{ proxy_pass http://app; }} }}")
}

/// The configuration with these contents of its `http`.
fn configuration(http: &str) -> String {
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {name};"));
    // It would also turn off a log of the row.
    let log = if http.contains("access_log") { "" } else { "access_log off;" };
    format!(
        "pid nginx.pid; daemon off; worker_processes 1; events {{}}\nhttp {{ {log} {}\n\
         proxy_cache_path cache keys_zone=c:1m inactive=1h max_size=20m;\n{http}\n}}\n",
        folders.concat()
    )
}

async fn start(http: &str) -> Server {
    let text = configuration(http);
    let mut program = Program::new("nginx", "nginx-light", ("http://", ""), move |port, folder| {
        let text = text.replace("@PORT@", &format!("127.0.0.1:{port}"));
        fs::write(folder.join("nginx.conf"), text).unwrap();
        arguments(folder, &[])
    });
    // Its workers end with it.
    program.end = Signal::TERM;
    Server::start(program).await
}

fn arguments(folder: &Path, more: &[&str]) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let fixed = ["-p", folder, "-e", "stderr", "-c", "nginx.conf"];
    fixed.iter().chain(more).map(|argument| (*argument).to_owned()).collect()
}

/// Runs nginx in its folder until it exits.
fn nginx(folder: &Path, more: &[&str]) -> bool {
    Command::new("nginx").args(arguments(folder, more)).status().unwrap().success()
}

async fn theirs(row: &Row) -> (Side, Server) {
    let (origins, folder) = (Origins::start(), tempfile::tempdir().unwrap());
    let server = start(&origins.fill(&row.theirs, folder.path())).await;
    (Side { address: server.address(), origins, folder, begun: Vec::new() }, server)
}

/// What is not to be stored, or not for long: the answer of the origin, and its outcome without the number.
const NOT_STORED: [(&str, &str); 17] = [
    ("200 | cache-control: private", "200"),
    ("200 | cache-control: private, max-age=60", "200"),
    ("200 | cache-control: no-store", "200"),
    ("200 | cache-control: no-cache", "200"),
    ("200 | cache-control: max-age=0", "200"),
    ("200 | expires: thu, 01 jan 1970 00:00:00 gmt", "200"),
    ("200 | set-cookie: a=b", "200"),
    ("200 | set-cookie: a=b | cache-control: max-age=60", "200"),
    ("200 | vary: *", "200"),
    ("302 | location: /x", "302"),
    ("401", "401"),
    ("403", "403"),
    ("404", "404"),
    ("429", "429"),
    ("500", "500"),
    ("502", "502"),
    ("503", "503"),
];

/// Asks for each of these twice: the origin is asked twice.
fn none_is_stored() -> Vec<Act> {
    let mut acts = Vec::new();
    for (at, (answer, status)) in NOT_STORED.into_iter().enumerate() {
        let path: &'static str = format!("/{at}").leak();
        let outcome = |count: u32| -> &'static str { format!("{status} a{count} {path}").leak() };
        acts.extend(twice(path, answer, [outcome(1), outcome(2)]));
    }
    acts
}

fn with(request: Request, shown: &'static [&'static str]) -> Request {
    Request { shown, ..request }
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows() -> Vec<Row> {
    let short = "200 | cache-control: max-age=1";
    let minutes = "200 | cache-control: max-age=600";
    let at_host = |host, request| Request { host, ..request };
    vec![
        Row {
            cell: "`upstream app { server a weight=3; server b backup; }`",
            theirs: app("server @DEAD@ weight=3; server @B@ backup;"),
            ours: "[proxy]\nupstream = ['http://@DEAD@ weight=3', 'http://@B@ backup']".into(),
            acts: vec![Act::Ask(get("/", "200"), "200 b1 /")],
        },
        Row {
            cell: "`least_conn`",
            theirs: app("least_conn; server @A@; server @B@;"),
            ours: "[proxy]\nupstream = ['http://@A@', 'http://@B@']\nbalance = 'least-connections'".into(),
            acts: vec![
                Act::Begin(get("/slow", "hold")),
                Act::Ask(get("/", "200"), "200 b1 /"),
                Act::Ask(get("/", "200"), "200 b2 /"),
                Act::End("200 a1 /slow"),
            ],
        },
        Row {
            cell: "`server_name shop.example; location /api { … }`",
            theirs: "server { listen @PORT@ default_server; return 404; } server { listen @PORT@; server_name shop.example; \
                     location / { proxy_pass http://@B@; } location /api { proxy_pass http://@A@; } }"
                .into(),
            ours: "[proxy]\nroute = ['shop.example/api=http://@A@', 'shop.example=http://@B@']".into(),
            acts: vec![
                Act::Ask(get("/api/x", "200"), "200 a1 /api/x"),
                Act::Ask(get("/x", "200"), "200 b1 /x"),
                Act::Ask(at_host("other.example", get("/x", "200")), "404"),
            ],
        },
        Row {
            cell: "`server_name *.blog.example`",
            theirs: "server { listen @PORT@ default_server; return 404; } server { listen @PORT@; server_name *.blog.example; \
                     location / { proxy_pass http://@A@; } } server { listen @PORT@; server_name one.blog.example; \
                     location / { proxy_pass http://@B@; } }"
                .into(),
            ours: "[proxy]\nroute = ['*.blog.example=http://@A@', 'one.blog.example=http://@B@']".into(),
            acts: vec![
                Act::Ask(at_host("x.blog.example", get("/", "200")), "200 a1 /"),
                Act::Ask(at_host("x.y.blog.example", get("/", "200")), "200 a2 /"),
                Act::Ask(at_host("one.blog.example", get("/", "200")), "200 b1 /"),
                Act::Ask(at_host("blog.example", get("/", "200")), "404"),
                Act::Ask(at_host("xblog.example", get("/", "200")), "404"),
            ],
        },
        Row {
            cell: "`location /images/ { proxy_pass http://img/; }`",
            theirs: "server { listen @PORT@; location / { return 404; } location /images/ { proxy_pass http://@A@/; } }".into(),
            ours: "[[proxy.route]]\nmatch = '/images/'\nupstream = ['http://@A@']\nstrip-prefix = true".into(),
            acts: vec![
                Act::Ask(get("/images/cat?a", "200"), "200 a1 /cat?a"),
                Act::Ask(get("/imagesque", "200"), "404"),
                // nginx completes the path.
                Act::Each { theirs: (get("/images", "200"), "301"), ours: (get("/images", "200"), "404") },
            ],
        },
        Row {
            cell: "`return 301 https://shop.example$request_uri`",
            theirs: "server { listen @PORT@; return 301 https://shop.example$request_uri; }".into(),
            ours: "[[proxy.route]]\nmatch = '/'\nredirect = 'https://shop.example{path}'\nstatus = 301".into(),
            acts: vec![Act::Ask(
                with(get("/a%20b?c=d", "200"), &["location"]),
                "301 | location: https://shop.example/a%20b?c=d",
            )],
        },
        Row {
            cell: "`proxy_set_header X-Site shop`",
            theirs: location("proxy_set_header X-Site shop;"),
            ours: route("request-headers.set.X-Site = 'shop'"),
            acts: vec![Act::Ask(
                Request { fields: "x-site: evil\r\n", ..get("/", "200 | echo x-site") },
                "200 a1 / x-site=shop",
            )],
        },
        Row {
            cell: "`add_header`",
            theirs: location("add_header X-Added 1;"),
            ours: route("response-headers.add.X-Added = '1'"),
            acts: vec![
                Act::Ask(with(get("/", "200 | x-added: 0"), &["x-added"]), "200 a1 / | x-added: 0 | x-added: 1"),
                // nginx adds nothing to errors, unless the directive says `always`.
                Act::Each {
                    theirs: (with(get("/x", "404"), &["x-added"]), "404 a1 /x"),
                    ours: (with(get("/x", "404"), &["x-added"]), "404 a1 /x | x-added: 1"),
                },
            ],
        },
        Row {
            cell: "`proxy_hide_header`",
            theirs: cached("proxy_cache_valid 200 10m; proxy_hide_header X-Powered-By;"),
            ours: route("response-headers.hide = ['X-Powered-By']\ncache.ttl = { 200 = '10m' }"),
            acts: ["200 a1 /"; 2]
                .map(|outcome| Act::Ask(with(get("/", "200 | x-powered-by: php"), &["x-powered-by"]), outcome))
                .into(),
        },
        Row {
            cell: "`proxy_set_header X-Forwarded-For …`",
            theirs: location("proxy_set_header X-Forwarded-For $remote_addr;"),
            ours: route(""),
            acts: vec![Act::Ask(
                Request { fields: "x-forwarded-for: 192.0.2.7\r\n", ..get("/", "200 | echo x-forwarded-for") },
                "200 a1 / x-forwarded-for=127.0.0.1",
            )],
        },
        Row {
            cell: "`proxy_cache_path … max_size=20g`",
            theirs: cached(""),
            ours: format!("cache = '16MiB'\ncache-dir = '@DIR@/cache'\ncache-disk = '20MiB'\n{}", route("")),
            acts: twice("/", minutes, ["200 a1 /"; 2]),
        },
        Row {
            cell: "`proxy_cache_valid 200 10m`",
            theirs: cached("proxy_cache_valid 200 10m;"),
            ours: route("cache.ttl = { 200 = '10m' }"),
            acts: [
                twice("/", "200", ["200 a1 /"; 2]),
                twice("/public", "200 | cache-control: public", ["200 a1 /public"; 2]),
                twice("/stated", minutes, ["200 a1 /stated"; 2]),
                none_is_stored(),
                vec![
                    Act::Ask(get("/short", short), "200 a1 /short"),
                    Act::Pass,
                    Act::Ask(get("/short", short), "200 a2 /short"),
                    // A guess about a request with a cookie or a key would share a page of one client.
                    Act::Each {
                        theirs: (Request { fields: "cookie: a=b\r\n", ..get("/own", "200") }, "200 a1 /own"),
                        ours: (Request { fields: "cookie: a=b\r\n", ..get("/own", "200") }, "200 a1 /own"),
                    },
                    Act::Each { theirs: (get("/own", "200"), "200 a1 /own"), ours: (get("/own", "200"), "200 a2 /own") },
                ],
            ]
            .into_iter()
            .flatten()
            .collect(),
        },
        Row {
            cell: "`proxy_cache_valid 10m`",
            theirs: cached("proxy_cache_valid 10m;"),
            ours: route("cache.ttl = { 200 = '10m', 301 = '10m', 302 = '10m' }"),
            acts: [
                twice("/", "200", ["200 a1 /"; 2]),
                twice("/moved", "301 | location: /x", ["301 a1 /moved"; 2]),
                twice("/found", "302 | location: /x", ["302 a1 /found"; 2]),
                twice("/missing", "404", ["404 a1 /missing", "404 a2 /missing"]),
                twice("/busy", "503", ["503 a1 /busy", "503 a2 /busy"]),
            ]
            .into_iter()
            .flatten()
            .collect(),
        },
        Row {
            cell: "`proxy_cache_valid 404 1m`",
            theirs: cached("proxy_cache_valid 404 1m;"),
            ours: route("cache.ttl = { 404 = '1m' }"),
            acts: [
                twice("/missing", "404", ["404 a1 /missing"; 2]),
                twice("/gone", "410", ["410 a1 /gone", "410 a2 /gone"]),
                twice("/", "200", ["200 a1 /", "200 a2 /"]),
                twice("/own", "404 | cache-control: private", ["404 a1 /own", "404 a2 /own"]),
            ]
            .into_iter()
            .flatten()
            .collect(),
        },
        Row {
            cell: "`proxy_ignore_headers Cache-Control Expires`, `proxy_cache_valid 200 10m`",
            theirs: cached(
                "proxy_ignore_headers Cache-Control Expires; proxy_hide_header Cache-Control; proxy_hide_header Expires; \
                 proxy_cache_valid 200 10m;",
            ),
            ours: route("response-headers.remove = ['Cache-Control', 'Expires']\ncache.ttl = { 200 = '10m' }"),
            acts: [
                twice("/own", "200 | cache-control: private", ["200 a1 /own"; 2]),
                twice("/zero", "200 | cache-control: max-age=0", ["200 a1 /zero"; 2]),
                twice("/cookie", "200 | set-cookie: a=b", ["200 a1 /cookie", "200 a2 /cookie"]),
                twice("/busy", "503 | cache-control: max-age=600", ["503 a1 /busy", "503 a2 /busy"]),
            ]
            .into_iter()
            .flatten()
            .collect(),
        },
        Row {
            cell: "`proxy_ignore_headers Set-Cookie`, `proxy_hide_header Set-Cookie`",
            theirs: cached("proxy_cache_valid 200 10m; proxy_ignore_headers Set-Cookie; proxy_hide_header Set-Cookie;"),
            ours: route("response-headers.remove = ['Set-Cookie']\ncache.ttl = { 200 = '10m' }"),
            acts: ["200 a1 /"; 2]
                .map(|outcome| Act::Ask(with(get("/", "200 | set-cookie: a=b"), &["set-cookie"]), outcome))
                .into(),
        },
        Row {
            cell: "`proxy_ignore_headers Set-Cookie`",
            theirs: cached("proxy_ignore_headers Set-Cookie;"),
            ours: format!("[proxy]\nshare-cookies = true\n{}", route("")),
            acts: ["200 a1 / | set-cookie: a=b"; 2]
                .map(|outcome| {
                    let answer = "200 | set-cookie: a=b | cache-control: max-age=600";
                    Act::Ask(with(get("/", answer), &["set-cookie"]), outcome)
                })
                .into(),
        },
        Row {
            cell: "`proxy_cache off`, `proxy_no_cache 1`",
            theirs: location("proxy_cache off;"),
            ours: route("cache = 'off'"),
            acts: twice("/", minutes, ["200 a1 /", "200 a2 /"]),
        },
        Row {
            cell: "`proxy_cache_use_stale error timeout`",
            theirs: cached("proxy_cache_use_stale error timeout;"),
            ours: route(""),
            acts: vec![
                Act::Ask(get("/", short), "200 a1 /"),
                Act::Pass,
                Act::Ask(get("/", "close"), "200 a1 /"),
                Act::Ask(get("/none", "close"), "502"),
            ],
        },
        Row {
            cell: "`proxy_cache_use_stale http_500 http_502 http_503 http_504`",
            theirs: cached("proxy_cache_use_stale http_500 http_502 http_503 http_504;"),
            ours: format!("[proxy]\nstale-if-error = '1h'\n{}", route("")),
            acts: vec![
                Act::Ask(get("/", short), "200 a1 /"),
                Act::Pass,
                Act::Ask(get("/", "503"), "200 a1 /"),
                Act::Ask(get("/", "500"), "200 a1 /"),
                Act::Ask(get("/none", "500"), "500 a1 /none"),
            ],
        },
        Row {
            cell: "`proxy_cache_use_stale updating`, `proxy_cache_background_update on`",
            theirs: cached("proxy_cache_use_stale updating; proxy_cache_background_update on;"),
            ours: format!("[proxy]\nstale-while-revalidate = '1h'\n{}", route("")),
            acts: vec![
                Act::Ask(get("/", short), "200 a1 /"),
                Act::Pass,
                Act::Ask(get("/", minutes), "200 a1 /"),
                Act::Until(get("/", minutes), "200 a2 /"),
            ],
        },
        Row {
            cell: "`proxy_cache_lock on`, `proxy_cache_lock_timeout`",
            theirs: cached("proxy_cache_lock on; proxy_cache_lock_timeout 60s;"),
            ours: route(""),
            acts: vec![
                Act::Begin(get("/", "hold | cache-control: max-age=600")),
                Act::Begin(get("/", "200")),
                Act::Begin(get("/", "200")),
                Act::End("200 a1 /"),
                Act::Ask(get("/", "200"), "200 a1 /"),
            ],
        },
        Row {
            cell: "`proxy_cache_revalidate on`",
            theirs: cached("proxy_cache_revalidate on;"),
            ours: route(""),
            acts: vec![
                Act::Ask(get("/", "200 | cache-control: max-age=1 | etag: \"1\""), "200 a1 /"),
                Act::Pass,
                Act::Ask(get("/", "200 | cache-control: max-age=600 | etag: \"1\""), "200 a1 /"),
                Act::Ask(get("/", "200"), "200 a1 /"),
            ],
        },
        Row {
            cell: "`proxy_next_upstream`",
            theirs: app("server @A@ max_fails=0; server @B@ backup;"),
            ours: "[proxy]\nupstream = ['http://@A@', 'http://@B@ backup']".into(),
            acts: vec![
                Act::Ask(get("/", "200 | close a"), "200 b1 /"),
                Act::Ask(Request { method: "POST", ..get("/post", "200 | close a") }, "502"),
            ],
        },
        Row {
            cell: "`max_fails`, `fail_timeout`",
            theirs: app("server @DEAD@ max_fails=1 fail_timeout=1h; server @B@ backup;"),
            ours: "[proxy]\nupstream = ['http://@DEAD@', 'http://@B@ backup']\nbreaker-failures = 1\nbreaker-pause = '1h'".into(),
            acts: vec![
                Act::Ask(get("/", "200"), "200 b1 /"),
                Act::Revive,
                Act::Ask(get("/", "200"), "200 b2 /"),
            ],
        },
        Row {
            cell: "`proxy_read_timeout`, `proxy_connect_timeout`",
            theirs: location("proxy_read_timeout 1s; proxy_connect_timeout 60s;"),
            ours: route("answer-timeout = '1s'\nconnect-timeout = '60s'"),
            acts: vec![Act::Ask(get("/", "hold"), "504")],
        },
        Row {
            cell: "`client_max_body_size`",
            theirs: location("client_max_body_size 1k;"),
            ours: route("max-body-size = '1KiB'"),
            acts: vec![
                Act::Ask(Request { method: "POST", content: 1_024, ..get("/", "200") }, "200 a1 /"),
                Act::Ask(Request { method: "POST", content: 1_025, ..get("/", "200") }, "413"),
            ],
        },
        Row {
            cell: "`access_log … combined`",
            theirs: format!("access_log @DIR@/access.log combined; {}", location("")),
            ours: format!("access-log = '@DIR@/access.log'\naccess-log-format = 'combined'\n{}", route("")),
            acts: vec![
                Act::Ask(Request { fields: "user-agent: a b\r\n", ..get("/x?y", "200") }, "200 a1 /x?y"),
                // Queries may have secrets.
                Act::Log {
                    theirs: "127.0.0.1 - - [] \"GET /x?y HTTP/1.1\" 200 7 \"-\" \"a b\"",
                    ours: "127.0.0.1 - - [] \"GET /x HTTP/1.1\" 200 7 \"-\" \"a b\"",
                },
            ],
        },
    ]
}

#[tokio::test]
async fn each_row_for_nginx_has_the_same_outcomes_as_nginx() {
    let rows = rows();
    require_all(PAGE, &rows, &OTHERS);
    let mut wrong = Vec::new();
    for row in &rows {
        let (mut side, _server) = theirs(row).await;
        wrong.extend(side.run("nginx", row));
        let (mut side, _gateway) = Side::ours(row);
        wrong.extend(side.run("ifmatch", row));
    }
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
    let redirecting = start("server { listen @PORT@; return 301 https://$host$request_uri; }").await;
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
    let plain = gateway.line_after("redirecting http://").replace(" to https", "").parse().unwrap();
    let request = "GET /a?b HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n";
    let moved = exchange(redirecting.address(), request).expect(301);
    assert_eq!(moved.header("location"), "https://shop.example/a?b");
    // The method stays the same, and the port is that of the test.
    let moved = exchange(plain, request).expect(308);
    assert_eq!(moved.header("location"), format!("https://shop.example:{}/a?b", gateway.address().port()));
}

#[tokio::test]
async fn a_configuration_is_checked_and_reloaded_as_by_nginx() {
    let origins = Origins::start();
    let folder = tempfile::tempdir().unwrap();
    let fill = |text: &str| origins.fill(text, folder.path());
    let outcome = |address, expected: &str| {
        eventually(expected, || get("/", "200").outcome(address).starts_with(expected).then_some(()));
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
    eventually("a refused reload", || gateway.stderr().contains("cannot reload").then_some(()));
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
        ("/b", "200 | cache-control: max-age=600", "MISS", "fwd=uri-miss"),
        ("/b", "200", "HIT", "hit"),
    ] {
        if theirs == "EXPIRED" {
            std::thread::sleep(std::time::Duration::from_millis(2_100));
        }
        assert_eq!(get(path, answer).send(server.address()).header("x-cache"), theirs);
        let status = get(path, answer).send(gateway.address()).header("cache-status").to_owned();
        assert!(status.starts_with(&format!("ifmatch; {ours}")), "{theirs}: {status}");
    }
    assert!(get("/status", "").send(server.address()).expect(200).text().contains("Active connections"));
    let local = Request { host: "localhost", ..get("/-/metrics", "") };
    assert!(local.send(gateway.address()).expect(200).text().contains("ifmatch_connections"));
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
    let http =
        format!("access_log @ROOT@/access.log combined; {http}").replace("@ROOT@", folder.path().to_str().unwrap());
    let server = start(&http).await;
    let gateway = Gateway::start(["proxy", "--upstream", &server.url()]);
    let ask = |fields: &'static str| Request { fields, ..get("/a.txt", "") }.send(gateway.address()).expect(200);
    let gzip = "accept-encoding: gzip\r\n";
    let first = ask(gzip);
    assert_eq!(first.header("content-encoding"), "gzip");
    assert!(first.etag().starts_with("W/"), "{first:?}");
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    let second = ask(gzip);
    assert!(second.header("cache-status").contains("fwd-status=304"), "{second:?}");
    assert_eq!((second.etag(), second.header("content-encoding"), &second.body), (first.etag(), "gzip", &first.body));
    // The strong tag is that of the bytes before compression.
    let plain = ask("");
    assert_eq!((plain.etag(), plain.text()), (first.etag().trim_start_matches("W/"), text.as_str()));
    let log = eventually("three requests in the log", || {
        let log = fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
        (log.lines().count() >= 3).then_some(log)
    });
    let statuses: Vec<_> =
        log.lines().map(|line| line.split("\" ").nth(1).unwrap().split(' ').next().unwrap()).collect();
    assert_eq!(statuses[..2], ["200", "304"], "{log}");
}
