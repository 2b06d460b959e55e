//! The rows of the page for users of Varnish.

use std::fs;
use std::process::Command;

use ifmatch_testbed::{Program, Server};
use rustix::process::Signal;
use support::{Gateway, run};

use super::{Act, Origins, Request, Row, Side, get, require_all, route, twice};

const PAGE: &str = include_str!("../../../docs/howto/varnish.md");

/// Rows with a test of their own below, and those without anything to compare.
const OTHERS: [(&str, &str); 7] = [
    (
        "several Varnish servers, and a tool that purges each",
        "tests/cluster/purges.rs and purge_storm.rs test several proxies",
    ),
    ("`xkey`", "a module of another package; groups are in proxy/endpoints.rs"),
    ("Hitch, for TLS", "another program; TLS is compared with nginx's"),
    ("`varnishncsa`", "its lines have whole URLs; the format is compared with nginx's"),
    ("`varnishstat`", "other counters"),
    ("`varnishd -C`, `vcl.load`, `vcl.use`", "commands: below; the reload is compared with nginx's"),
    ("`X-Varnish`, `obj.hits`", "other names for the same: below"),
];

/// A configuration with both origins, and these subroutines.
fn vcl(subroutines: &str) -> String {
    let backend = |name: &str, port: &str| format!("backend {name} {{ .host = \"127.0.0.1\"; .port = \"{port}\"; }}\n");
    format!(
        "vcl 4.1;\nimport std;\nimport directors;\n{}{}{subroutines}\n",
        backend("a", "@APORT@"),
        backend("b", "@BPORT@")
    )
}

/// Uses both backends, so that the configuration is valid, and the first one for all requests.
const BOTH: &str = "sub vcl_init { new all = directors.round_robin(); all.add_backend(a); all.add_backend(b); }\n";

fn first(subroutines: &str) -> String {
    vcl(&format!("{BOTH}{subroutines}"))
}

async fn start(vcl: String, more: &'static [&'static str]) -> Server {
    let mut program = Program::new("varnishd", "varnish", ("http://", ""), move |port, folder| {
        let file = folder.join("site.vcl");
        fs::write(&file, &vcl).unwrap();
        let (listen, state) = (format!("127.0.0.1:{port}"), folder.join("state"));
        let fixed = ["-F", "-j", "none", "-a", &listen, "-s", "malloc,16m", "-p", "thread_pools=1"];
        let files = ["-n", state.to_str().unwrap(), "-f", file.to_str().unwrap()];
        fixed.iter().chain(&files).chain(more).map(|argument| (*argument).to_owned()).collect()
    });
    // Its worker ends with it.
    program.end = Signal::TERM;
    Server::start(program).await
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows() -> Vec<Row> {
    let (short, minutes) = ("200 | cache-control: max-age=1", "200 | cache-control: max-age=600");
    let cookie = |request: Request| Request { fields: "cookie: a=b\r\n", ..request };
    let shows = |request: Request, shown| Request { shown, ..request };
    let two = "[proxy]\nupstream = ['http://@A@', 'http://@B@']\n";
    vec![
        Row {
            cell: "`backend`, directors",
            theirs: first("sub vcl_recv { set req.backend_hint = all.backend(); return (pass); }"),
            ours: two.into(),
            acts: vec![
                Act::Ask(get("/", "200"), "200 a1 /"),
                Act::Ask(get("/", "200"), "200 b1 /"),
                Act::Ask(get("/", "200"), "200 a2 /"),
            ],
        },
        Row {
            cell: "`.probe`",
            theirs: vcl(
                "probe health { .url = \"/health\"; .interval = 1s; .timeout = 30s; .window = 1; .threshold = 1; .initial = 0; }\n\
                 backend sick { .host = \"127.0.0.1\"; .port = \"@APORT@\"; .probe = health; }\n\
                 backend well { .host = \"127.0.0.1\"; .port = \"@BPORT@\"; .probe = health; }\n\
                 sub vcl_init { new all = directors.round_robin(); all.add_backend(a); all.add_backend(b); \
                 new checked = directors.fallback(); checked.add_backend(sick); checked.add_backend(well); }\n\
                 sub vcl_recv { set req.backend_hint = checked.backend(); return (pass); }",
            ),
            ours: "[proxy]\nhealth-interval = '1s'\n[[proxy.route]]\nmatch = '/'\nupstream = ['http://@A@', 'http://@B@']\n\
                   health-path = '/health'"
                .into(),
            acts: vec![
                Act::Checked,
                Act::Ask(get("/1", "200"), "200 b1 /1"),
                Act::Ask(get("/2", "200"), "200 b1 /2"),
                Act::Ask(get("/3", "200"), "200 b1 /3"),
            ],
        },
        Row {
            cell: "`.max_connections`, `.first_byte_timeout`",
            theirs: "vcl 4.1;\nbackend a { .host = \"127.0.0.1\"; .port = \"@APORT@\"; .first_byte_timeout = 1s; \
                     .max_connections = 10; }\nsub vcl_recv { return (pass); }\n"
                .into(),
            ours: format!("[proxy]\nupstream-requests = 10\n{}", route("answer-timeout = '1s'")),
            acts: vec![Act::Each { theirs: (get("/", "hold"), "503"), ours: (get("/", "hold"), "504") }],
        },
        Row {
            cell: "`if (req.http.host == \"…\") { set req.backend_hint = …; }`",
            theirs: first("sub vcl_recv { if (req.http.host == \"shop.example\") { set req.backend_hint = b; } }"),
            ours: "[proxy]\nupstream = ['http://@A@']\nroute = ['shop.example=http://@B@']".into(),
            acts: vec![
                Act::Ask(get("/", "200"), "200 b1 /"),
                Act::Ask(Request { host: "other.example", ..get("/", "200") }, "200 a1 /"),
            ],
        },
        Row {
            cell: "`regsub(req.url, \"^/images\", \"\")`",
            theirs: first("sub vcl_recv { set req.url = regsub(req.url, \"^/images\", \"\"); return (pass); }"),
            ours: format!("{}[[proxy.route]]\nmatch = '/images'\nupstream = ['http://@A@']\nstrip-prefix = true", route("")),
            acts: vec![
                Act::Ask(get("/images/cat?a", "200"), "200 a1 /cat?a"),
                Act::Ask(get("/x", "200"), "200 a1 /x"),
            ],
        },
        Row {
            cell: "`return (synth(301, …))`",
            theirs: first(
                "sub vcl_recv { return (synth(301, \"https://shop.example\" + req.url)); }\n\
                 sub vcl_synth { set resp.http.Location = resp.reason; set resp.reason = \"Moved\"; return (deliver); }",
            ),
            ours: "[[proxy.route]]\nmatch = '/'\nredirect = 'https://shop.example{path}'\nstatus = 301".into(),
            acts: vec![Act::Ask(shows(get("/a?b", ""), &["location"]), "301 | location: https://shop.example/a?b")],
        },
        Row {
            cell: "`unset req.http.Cookie`",
            theirs: first("sub vcl_recv { unset req.http.Cookie; }"),
            ours: route("request-headers.remove = ['Cookie']\ncache.ttl = '2m'"),
            acts: vec![
                Act::Ask(cookie(get("/", "200 | echo cookie")), "200 a1 / cookie=-"),
                Act::Ask(cookie(get("/", "200 | echo cookie")), "200 a1 / cookie=-"),
                Act::Ask(cookie(get("/own", "200 | cache-control: private")), "200 a1 /own"),
                Act::Ask(cookie(get("/own", "200 | cache-control: private")), "200 a2 /own"),
            ],
        },
        Row {
            cell: "`unset beresp.http.Set-Cookie`",
            theirs: first("sub vcl_backend_response { unset beresp.http.Set-Cookie; }"),
            ours: route("response-headers.remove = ['Set-Cookie']\ncache.ttl = '2m'"),
            acts: ["200 a1 /"; 2]
                .map(|outcome| Act::Ask(shows(get("/", "200 | set-cookie: a=b"), &["set-cookie"]), outcome))
                .into(),
        },
        Row {
            cell: "`if (beresp.status == 200) { set beresp.ttl = 10m; }`",
            theirs: first("sub vcl_backend_response { if (beresp.status == 200) { set beresp.ttl = 10m; } }"),
            ours: route("cache.override-ttl = { 200 = '10m' }"),
            acts: [
                twice("/", "200", ["200 a1 /"; 2]),
                twice("/zero", "200 | cache-control: max-age=0", ["200 a1 /zero"; 2]),
                twice("/own", "200 | cache-control: private, max-age=60", ["200 a1 /own", "200 a2 /own"]),
                twice("/secret", "200 | cache-control: no-store", ["200 a1 /secret", "200 a2 /secret"]),
                twice("/live", "200 | cache-control: no-cache", ["200 a1 /live", "200 a2 /live"]),
                twice("/cookie", "200 | set-cookie: a=b | cache-control: max-age=60", ["200 a1 /cookie", "200 a2 /cookie"]),
                twice("/vary", "200 | vary: *", ["200 a1 /vary", "200 a2 /vary"]),
                twice("/found", "302 | location: /x", ["302 a1 /found", "302 a2 /found"]),
                twice("/refused", "403", ["403 a1 /refused", "403 a2 /refused"]),
                twice("/broken", "500", ["500 a1 /broken", "500 a2 /broken"]),
                twice("/busy", "503", ["503 a1 /busy", "503 a2 /busy"]),
                vec![
                    Act::Ask(get("/short", short), "200 a1 /short"),
                    Act::Pass,
                    Act::Ask(get("/short", short), "200 a1 /short"),
                ],
            ]
            .into_iter()
            .flatten()
            .collect(),
        },
        Row {
            cell: "`set beresp.uncacheable = true`, `return (pass)`",
            theirs: first("sub vcl_recv { return (pass); }"),
            ours: route("cache = 'off'"),
            acts: twice("/", minutes, ["200 a1 /", "200 a2 /"]),
        },
        Row {
            cell: "`default_ttl`",
            theirs: first(""),
            ours: format!("[proxy]\ndefault-ttl = '10m'\n{}", route("")),
            acts: [
                twice("/", "200", ["200 a1 /"; 2]),
                twice("/missing", "404", ["404 a1 /missing"; 2]),
                twice("/busy", "503", ["503 a1 /busy", "503 a2 /busy"]),
                twice("/cookie", "200 | set-cookie: a=b", ["200 a1 /cookie", "200 a2 /cookie"]),
                twice("/own", "200 | cache-control: private", ["200 a1 /own", "200 a2 /own"]),
            ]
            .into_iter()
            .flatten()
            .collect(),
        },
        Row {
            cell: "`beresp.grace`",
            theirs: first("sub vcl_backend_response { set beresp.grace = 1h; }"),
            ours: format!("[proxy]\nstale-while-revalidate = '1h'\n{}", route("")),
            acts: vec![
                Act::Ask(get("/", short), "200 a1 /"),
                Act::Pass,
                Act::Ask(get("/", minutes), "200 a1 /"),
                Act::Until(get("/", minutes), "200 a2 /"),
            ],
        },
        Row {
            cell: "`std.querysort`, filters of the query",
            theirs: first("sub vcl_recv { set req.url = std.querysort(req.url); }"),
            ours: format!("[proxy]\nsort-query = true\n{}", route("")),
            acts: vec![
                Act::Ask(get("/?b=1&a=2", minutes), "200 a1 /?a=2&b=1"),
                Act::Ask(get("/?a=2&b=1", minutes), "200 a1 /?a=2&b=1"),
            ],
        },
        Row {
            cell: "`PURGE` with an `acl`",
            theirs: first(
                "acl local { \"127.0.0.1\"; }\n\
                 sub vcl_recv { if (req.method == \"PURGE\" && client.ip ~ local) { return (purge); } }",
            ),
            ours: route(""),
            acts: vec![
                Act::Ask(get("/", minutes), "200 a1 /"),
                Act::Ask(get("/", minutes), "200 a1 /"),
                Act::Ask(Request { method: "PURGE", ..get("/", "") }, "200"),
                Act::Ask(get("/", minutes), "200 a2 /"),
            ],
        },
        Row {
            cell: "`ban(\"req.url ~ ^/docs/\")`",
            theirs: first(
                "sub vcl_recv { if (req.method == \"BAN\") { ban(\"req.url ~ ^/docs/\"); return (synth(200)); } }",
            ),
            ours: route(""),
            acts: vec![
                Act::Ask(get("/docs/a", minutes), "200 a1 /docs/a"),
                Act::Ask(get("/x", minutes), "200 a1 /x"),
                Act::Each {
                    theirs: (Request { method: "BAN", ..get("/", "") }, "200"),
                    ours: (
                        Request {
                            method: "DELETE",
                            host: "localhost",
                            ..get("/-/cache?prefix=http://shop.example/docs/", "")
                        },
                        "200",
                    ),
                },
                Act::Ask(get("/docs/a", minutes), "200 a2 /docs/a"),
                Act::Ask(get("/x", minutes), "200 a1 /x"),
            ],
        },
        Row {
            cell: "`unset resp.http.Surrogate-Key` in `vcl_deliver`",
            theirs: first("sub vcl_deliver { unset resp.http.Surrogate-Key; }"),
            ours: route("response-headers.hide = ['Surrogate-Key']"),
            acts: ["200 a1 /"; 2]
                .map(|outcome| {
                    let answer = "200 | surrogate-key: post-1 | cache-control: max-age=600";
                    Act::Ask(shows(get("/", answer), &["surrogate-key"]), outcome)
                })
                .into(),
        },
        Row {
            cell: "`-s malloc,1G`, `-s file`",
            theirs: first(""),
            ours: format!("cache = '16MiB'\ncache-dir = '@DIR@/cache'\n{}", route("")),
            acts: twice("/", minutes, ["200 a1 /"; 2]),
        },
    ]
}

#[tokio::test]
async fn each_row_for_varnish_has_the_same_outcomes_as_varnish() {
    let rows = rows();
    require_all(PAGE, &rows, &OTHERS);
    let mut wrong = Vec::new();
    for row in &rows {
        let (origins, folder) = (Origins::start(), tempfile::tempdir().unwrap());
        let default_ttl: &[&str] = if row.cell == "`default_ttl`" { &["-p", "default_ttl=600"] } else { &[] };
        let server = start(origins.fill(&row.theirs, folder.path()), default_ttl).await;
        let mut side = Side { address: server.address(), origins, folder, begun: Vec::new() };
        wrong.extend(side.run("varnish", row));
        let (mut side, _gateway) = Side::ours(row);
        wrong.extend(side.run("ifmatch", row));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[tokio::test]
async fn a_configuration_is_checked_and_a_hit_is_named_as_by_varnish() {
    let origins = Origins::start();
    let folder = tempfile::tempdir().unwrap();
    let hits = first("sub vcl_deliver { set resp.http.X-Hits = obj.hits; }");
    let server = start(origins.fill(&hits, folder.path()), &[]).await;
    let file = server.folder().join("site.vcl");
    let compile = |text: &str| {
        fs::write(&file, text).unwrap();
        let state = server.folder().join("checked");
        let mut command = Command::new("varnishd");
        command.args(["-C", "-j", "none", "-n"]).arg(state).arg("-f").arg(&file);
        command.output().unwrap().status.success()
    };
    let text = fs::read_to_string(&file).unwrap();
    assert!(compile(&text) && !compile(&text.replace("vcl_deliver", "vcl_delivery {")));

    let own = Origins::start();
    let file = folder.path().join("proxy.toml");
    let check = |text: &str| {
        fs::write(&file, own.fill(text, folder.path())).unwrap();
        run(["proxy", "--check", "--config", file.to_str().unwrap()]).status.success()
    };
    assert!(!check(&route("match-host = 'a'")) && check(&route("")));
    let gateway = Gateway::start(["proxy", "--config", file.to_str().unwrap()]);
    let minutes = "200 | cache-control: max-age=600";
    for (theirs, ours) in [("0", "fwd=uri-miss"), ("1", "hit"), ("2", "hit")] {
        assert_eq!(get("/", minutes).send(server.address()).header("x-hits"), theirs);
        let status = get("/", minutes).send(gateway.address()).header("cache-status").to_owned();
        assert!(status.starts_with(&format!("ifmatch; {ours}")), "{theirs}: {status}");
    }
}
