//! The rows of the page for users of Varnish.

use std::fs;
use std::process::Command;

use ifmatch_testbed::{Program, Server};
use rustix::process::Signal;
use support::{Gateway, run};

use super::{Origins, Side, get, route, rows};

const PAGE: &str = include_str!("../../../docs/howto/varnish.md");

/// Rows with a test of their own below, and those without anything to compare.
const OTHERS: [(&str, &str); 7] = [
    (
        "several Varnish servers, and a tool that purges each",
        "tests/servers/cluster/purges.rs and purge_storm.rs test several proxies",
    ),
    (
        "`xkey`",
        "a module of another package; groups are in proxy/endpoints.rs",
    ),
    (
        "Hitch, for TLS",
        "another program; TLS is compared with nginx's",
    ),
    (
        "`varnishncsa`",
        "its lines have whole URLs; the format is compared with nginx's",
    ),
    ("`varnishstat`", "other counters"),
    (
        "`varnishd -C`, `vcl.load`, `vcl.use`",
        "commands: below; the reload is compared with nginx's",
    ),
    ("`X-Varnish`, `obj.hits`", "other names for the same: below"),
];

/// A configuration with both origins, and these subroutines. Without others, both are used, so it is valid, and the first one is
/// for all requests. A whole configuration is left as it is.
fn vcl(subroutines: &str) -> String {
    if subroutines.starts_with("vcl ") {
        return subroutines.to_owned();
    }
    let backend = |name: &str, port: &str| {
        format!("backend {name} {{ .host = \"127.0.0.1\"; .port = \"{port}\"; }}\n")
    };
    let both = "sub vcl_init { new all = directors.round_robin(); all.add_backend(a); all.add_backend(b); }\n";
    let both = if subroutines.contains("sub vcl_init") {
        ""
    } else {
        both
    };
    let (a, b) = (backend("a", "@APORT@"), backend("b", "@BPORT@"));
    format!("vcl 4.1;\nimport std;\nimport directors;\n{a}{b}{both}{subroutines}\n")
}

async fn start(vcl: String, more: &'static [&'static str]) -> Server {
    let mut program = Program::new(
        "varnishd",
        "varnish",
        ("http://", ""),
        move |port, folder| {
            let file = folder.join("site.vcl");
            fs::write(&file, &vcl).unwrap();
            let (listen, state) = (format!("127.0.0.1:{port}"), folder.join("state"));
            let fixed = [
                "-F",
                "-j",
                "none",
                "-a",
                &listen,
                "-s",
                "malloc,16m",
                "-p",
                "thread_pools=1",
            ];
            let files = ["-n", state.to_str().unwrap(), "-f", file.to_str().unwrap()];
            fixed
                .iter()
                .chain(&files)
                .chain(more)
                .map(|argument| (*argument).to_owned())
                .collect()
        },
    );
    // Its worker ends with it.
    program.end = Signal::TERM;
    Server::start(program).await
}

#[tokio::test]
async fn each_row_for_varnish_has_the_same_outcomes_as_varnish() {
    let mut wrong = Vec::new();
    for row in &rows(include_str!("data/varnish.toml"), PAGE, &OTHERS) {
        let (origins, folder) = (Origins::start(), tempfile::tempdir().unwrap());
        let default_ttl: &[&str] = if row.cell == "`default_ttl`" {
            &["-p", "default_ttl=600"]
        } else {
            &[]
        };
        let server = start(origins.fill(&vcl(&row.theirs), folder.path()), default_ttl).await;
        let mut side = Side::of(server.address(), origins, folder);
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
    let hits = vcl("sub vcl_deliver { set resp.http.X-Hits = obj.hits; }");
    let server = start(origins.fill(&hits, folder.path()), &[]).await;
    let file = server.folder().join("site.vcl");
    let compile = |text: &str| {
        fs::write(&file, text).unwrap();
        let state = server.folder().join("checked");
        let mut command = Command::new("varnishd");
        command
            .args(["-C", "-j", "none", "-n"])
            .arg(state)
            .arg("-f")
            .arg(&file);
        command.output().unwrap().status.success()
    };
    let text = fs::read_to_string(&file).unwrap();
    assert!(compile(&text) && !compile(&text.replace("vcl_deliver", "vcl_delivery {")));

    let own = Origins::start();
    let file = folder.path().join("proxy.toml");
    let check = |text: &str| {
        fs::write(&file, own.fill(text, folder.path())).unwrap();
        run(["proxy", "--check", "--config", file.to_str().unwrap()])
            .status
            .success()
    };
    assert!(!check(&route("match-host = 'a'")) && check(&route("")));
    let gateway = Gateway::start(["proxy", "--config", file.to_str().unwrap()]);
    let minutes = "200 | cache-control: max-age=600";
    for (theirs, ours) in [("0", "fwd=uri-miss"), ("1", "hit"), ("2", "hit")] {
        assert_eq!(
            get("/", minutes).send(server.address()).header("x-hits"),
            theirs
        );
        let status = get("/", minutes)
            .send(gateway.address())
            .header("cache-status")
            .to_owned();
        assert!(
            status.starts_with(&format!("ifmatch; {ours}")),
            "{theirs}: {status}"
        );
    }
}
