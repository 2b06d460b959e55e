//! Starts with each setting, and requests on every kind of store.

use std::fs;
use std::net::TcpListener;

use support::raw::exchange;
use support::{Client, Finished, Gateway, run};

use crate::{get, in_shell, serve};

/// Checks the exit code, and that stderr contains these texts and no internals.
#[track_caller]
fn refused(end: &Finished, code: i32, expected: &[&str]) {
    assert_eq!(end.status.code(), Some(code), "{end:#?}");
    for text in expected {
        assert!(end.stderr.contains(text), "{text:?} is missing in {end:#?}");
    }
    for text in ["panicked", "RUST_BACKTRACE", "Err(", "Os {"] {
        assert!(!end.stderr.contains(text), "{text:?} in {end:#?}");
    }
}

#[test]
fn the_banner_has_an_example_and_no_colours_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &[]);
    let url = gateway.url("");
    let banner = gateway.stop().stdout;
    assert!(
        banner
            .lines()
            .any(|line| line == format!("listening on {url}")),
        "{banner}"
    );
    assert!(
        banner.contains(&format!("-X PUT -d hello {url}/docs/hello.txt")),
        "{banner}"
    );
    assert!(banner.contains(folder.path().to_str().unwrap()), "{banner}");
    assert!(!banner.contains('\u{1b}'), "{banner}");
}

#[test]
fn help_has_examples_and_a_missing_command_fails() {
    let help = run(["serve", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(
        help.stdout.contains("ifmatch serve --data ./data"),
        "{}",
        help.stdout
    );
    assert!(
        help.stdout.contains("IFMATCH_MAX_BODY_SIZE"),
        "{}",
        help.stdout
    );
    refused(&run([""; 0]), 2, &["Usage", "ifmatch serve --data ./data"]);
    refused(&run(["serve", "--no-such-flag"]), 2, &["--no-such-flag"]);
    refused(&run(["serve", "--dta", "d"]), 2, &["--dta", "'--data'"]);
    refused(&run(["server"]), 2, &["'serve'"]);
    assert_eq!(run(["help", "serve"]).stdout, help.stdout);
    assert_eq!(run(["help"]).stdout, run(["--help"]).stdout);
    refused(&run(["serve"]), 2, &["--data DIR", "--store URL"]);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new");
    let end = run([
        "serve",
        "--listen",
        &address,
        "--data",
        folder.to_str().unwrap(),
    ]);
    refused(
        &end,
        1,
        &[&format!("{address} is already in use"), "--listen"],
    );
    assert!(!folder.exists(), "a failed start leaves no folder behind");
}

#[test]
fn commands_without_a_gateway_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (url, to) = ("http://127.0.0.1:1", folder.path().to_str().unwrap());
    for command in [
        &["health", "--url", url][..],
        &["lease", "list", "--url", url],
        &["backup", "--url", url, "--data", "data", "--to", to],
    ] {
        refused(
            &run(command),
            1,
            &[
                "http://127.0.0.1:1 refused the connection. Start the gateway with `ifmatch serve`, or correct the URL.",
            ],
        );
    }
}

#[test]
fn the_address_of_another_machine_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let end = run([
        "serve",
        "--listen",
        "192.0.2.1:8080",
        "--write-token",
        "0123456789abcdef",
        "--data",
        data,
    ]);
    refused(
        &end,
        1,
        &["192.0.2.1:8080 is not an address of this machine"],
    );
}

#[test]
fn a_folder_in_use_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = serve(folder.path(), &[]);
    let end = run([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        folder.path().to_str().unwrap(),
    ]);
    refused(
        &end,
        11,
        &[
            "Another ifmatch process uses this folder",
            folder.path().to_str().unwrap(),
        ],
    );
    assert_eq!(end.stderr.lines().count(), 1, "{}", end.stderr);
    assert_eq!(first.stop().status.code(), Some(0));
}

/// The tests may run as root, which ignores permissions. A path that is a file, or is below one, fails for every user.
#[test]
fn a_file_instead_of_a_folder_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").unwrap();
    let named = format!("{} is a file", file.display());
    for path in [file.clone(), file.join("below")] {
        let path = path.to_str().unwrap();
        let serve = ["serve", "--listen", "127.0.0.1:0"];
        let proxy = [
            "proxy",
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            "http://127.0.0.1:9",
            "--cache-dir",
            path,
        ];
        refused(
            &run(serve.iter().chain(&["--data", path])),
            2,
            &["--data", path, &named, "name a folder instead"],
        );
        let store = ["--store", "memory://", "--data", path];
        refused(
            &run(serve.iter().chain(&store)),
            2,
            &["--data", path, &named],
        );
        refused(&run(proxy), 2, &["--cache-dir", path, &named]);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "not a folder");
}

#[test]
fn a_damaged_index_is_named_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    serve(folder.path(), &[]).stop();
    let index = folder.path().join("index.redb");
    fs::write(&index, vec![0x5a; 8192]).unwrap();
    let end = run([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        folder.path().to_str().unwrap(),
    ]);
    refused(&end, 3, &["index.redb", "damaged"]);
    assert_eq!(fs::read(&index).unwrap(), vec![0x5a; 8192]);
}

#[test]
fn invalid_stores_are_rejected() {
    for (url, code) in [
        ("ftp://host/x", 2),
        ("nonsense", 2),
        ("file:///dev/null/folder", 1),
    ] {
        let end = run(["serve", "--listen", "127.0.0.1:0", "--store", url]);
        refused(&end, code, &["--store", url]);
    }
}

#[test]
fn other_machines_need_a_token() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let end = run(["serve", "--store", "memory://", "--listen", address]);
        refused(&end, 2, &["--write-token-file", address]);
    }
    let gateway = Gateway::start([
        "serve",
        "--store",
        "memory://",
        "--listen",
        "0.0.0.0:0",
        "--write-token",
        "0123456789abcdef",
    ]);
    assert!(gateway.url("").starts_with("http://0.0.0.0:"));
}

#[test]
fn a_port_alone_means_localhost() {
    for address in ["localhost:0", ":0", "0"] {
        let gateway = Gateway::start([
            "serve",
            "--store",
            "memory://",
            "--listen-tables",
            address,
            "--listen",
            address,
        ]);
        let port = gateway.address().port();
        assert_eq!(gateway.address(), ([127, 0, 0, 1], port).into());
        exchange(gateway.address(), get("/-/health")).expect(200);
        // Some machines have no IPv6.
        if TcpListener::bind("[::1]:0").is_ok() {
            exchange(
                (std::net::Ipv6Addr::LOCALHOST, port).into(),
                get("/-/health"),
            )
            .expect(200);
        }
    }
    refused(
        &run([
            "serve",
            "--store",
            "memory://",
            "--listen",
            "example.com:80",
        ]),
        2,
        &["example.com:80", "IP:PORT"],
    );
}

#[test]
fn errors_in_the_file_show_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ifmatch.toml");
    for (text, expected) in [
        (
            "listen = '127.0.0.1:0'\nmax-bodysize = 1\n",
            vec!["line 2", "max-bodysize"],
        ),
        ("max-waits = 'many'", vec!["line 1", "max-waits"]),
        (
            "\n\nhead-timeout = '5 parsecs'",
            vec!["line 3", "5 parsecs", "30s"],
        ),
        ("data = ", vec!["line 1"]),
        (
            "log = 'info,=,'\ndata = '/nonexistent'",
            vec!["--log", "info,=,"],
        ),
        (
            "log = 'loud'\ndata = '/nonexistent'",
            vec!["--log", "loud", "contains no level", "error, warn, info"],
        ),
    ] {
        fs::write(&file, text).unwrap();
        let end = run(["serve", "--config", file.to_str().unwrap()]);
        refused(&end, 2, &expected);
    }
    refused(
        &run(["serve", "--config", "/nonexistent.toml"]),
        2,
        &["/nonexistent.toml"],
    );
}

#[test]
fn a_check_says_ok_or_the_line_of_the_error_and_binds_nothing() {
    let files = support::tls::Files::new();
    let path = |name: &str| files.path(name).to_str().unwrap().to_owned();
    let (taken, config) = (TcpListener::bind("127.0.0.1:0").unwrap(), path("site.toml"));
    let listen = format!("listen = '{}'", taken.local_addr().unwrap());
    let tls = |key: &str| {
        format!(
            "tls-cert = '{}'\ntls-key = '{}'",
            path("cert.pem"),
            path(key)
        )
    };
    let (good, log) = (tls("key.pem"), path("missing/access.log"));
    for (command, lines, expected) in [
        (
            "proxy",
            format!("{good}\n[proxy]\nupstream = ['http://127.0.0.1:9']"),
            Ok(()),
        ),
        (
            "serve",
            format!("{good}\ndata = '{}'", path("data")),
            Ok(()),
        ),
        (
            "proxy",
            format!("{}\n[proxy]\nupstream = ['http://a']", tls("other.pem")),
            Err("doesn't match"),
        ),
        (
            "proxy",
            "[proxy]\nupstream = ['ftp://a']".into(),
            Err("site.toml: line 3: --upstream: 'ftp://a'"),
        ),
        (
            "proxy",
            "[proxy]\nupstream = ['http://a']\nbalance = 'x'".into(),
            Err("line 4"),
        ),
        (
            "proxy",
            "[proxy]\nroute = ['/a;b=http://a']".into(),
            Err("line 3: --route: '/a;b'"),
        ),
        (
            "serve",
            format!("store = 'memory://'\naccess-log = '{log}'"),
            Err("Create the folder"),
        ),
        (
            "serve",
            format!("data = '{}'", path("key.pem")),
            Err("is a file"),
        ),
        (
            "serve",
            "store = 'memory://'\nlog = 'loud'".into(),
            Err("contains no level"),
        ),
    ] {
        fs::write(&config, format!("{listen}\n{lines}\n")).unwrap();
        let mut check = Gateway::command();
        let end = check
            .args([command, "--check", "--config", &config])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&end.stderr);
        match expected {
            Ok(()) => assert!(
                end.status.success() && end.stdout == b"ok\n" && stderr.is_empty(),
                "{lines}: {end:?}"
            ),
            Err(part) => assert!(
                end.status.code() == Some(2) && stderr.contains(part),
                "{lines}: {stderr}"
            ),
        }
    }
    assert!(
        !files.path("data").exists() && !files.path("missing").exists(),
        "nothing is created"
    );
}

#[test]
fn invalid_limits_are_rejected() {
    for flag in [
        "--max-requests=0",
        "--max-connections=0",
        "--max-requests-per-client=0",
        "--max-connections-per-client=0",
        "--keep-alive=0s",
        "--max-header-size=1KiB",
    ] {
        refused(
            &run(["serve", "--store", "memory://", flag]),
            2,
            &[flag.split('=').next().unwrap()],
        );
    }
    refused(
        &run(["serve", "--store", "memory://", "--max-body-size", "lots"]),
        2,
        &["lots", "64KiB"],
    );
}

#[tokio::test]
async fn flags_override_the_environment_and_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ifmatch.toml");
    fs::write(
        &file,
        "listen = '127.0.0.1:1'\nstore = 'memory://'\nmax-body-size = 1\nread-token = ['file']",
    )
    .unwrap();
    let mut command = Gateway::command();
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command
        .env("IFMATCH_CONFIG", &file)
        .env("IFMATCH_MAX_BODY_SIZE", "2")
        .env("IFMATCH_WRITE_TOKEN", "env1,env2");
    let gateway = Gateway::launch(command);
    let client = Client::new(gateway.address());
    let token = ("authorization", "Bearer env2");
    client.put("/c/a", &[token], "12").await.expect(201);
    client.put("/c/a", &[token], "123").await.expect(413);
    client
        .get("/c/a", &[("authorization", "Bearer file")])
        .await
        .expect(200);
}

#[test]
fn the_settings_of_the_package_are_accepted() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/ifmatch.toml");
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &["--config", file]);
    assert_eq!(gateway.stop().status.code(), Some(0));

    // Those that are comments name files that only their user can have.
    let setting = |line: &'static str| {
        line.strip_prefix('#')
            .filter(|rest| !rest.starts_with(' '))
            .unwrap_or(line)
    };
    let text = include_str!("../../../../packaging/ifmatch.toml");
    let all = folder.path().join("all.toml");
    fs::write(
        &all,
        text.lines().map(setting).collect::<Vec<_>>().join("\n"),
    )
    .unwrap();
    let end = run(["serve", "--config", all.to_str().unwrap()]);
    refused(&end, 2, &["/etc/ifmatch/write.token"]);
}

#[tokio::test]
async fn the_health_of_a_running_gateway_is_asked_by_a_command() {
    let mut gateway = Gateway::on_folder(&[]);
    let url = gateway.url("");
    for flags in [
        &["health", "--url", &url][..],
        &["health", "--ready", "--url", &url],
    ] {
        let healthy = run(flags);
        assert_eq!(
            (healthy.status.code(), healthy.stdout.trim()),
            (Some(0), "ok"),
            "{healthy:#?}"
        );
    }
    gateway.stop();
    let gone = run(["health", "--url", &url]);
    assert_eq!(gone.status.code(), Some(1), "{gone:#?}");
}

#[test]
fn completions_name_commands_and_flags_and_manual_pages_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let written = run(["man", folder.path().to_str().unwrap()]);
    assert_eq!(written.status.code(), Some(0), "{written:#?}");
    let page = fs::read_to_string(folder.path().join("ifmatch-serve.1")).unwrap();
    assert!(page.contains("127.0.0.1:10000"), "the page has no defaults");
    for shell in ["bash", "zsh", "fish"] {
        let completions = run(["completions", shell]);
        for word in ["serve", "proxy", "verify", "write-token-file"] {
            assert!(
                completions.stdout.contains(word),
                "{shell}: {word} is missing"
            );
        }
    }
}

#[tokio::test]
async fn every_kind_of_object_store_honours_conditions() {
    let folder = tempfile::tempdir().unwrap();
    let known = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let known = known.path().to_str().unwrap();
    for flags in [
        vec!["--store", "memory://"],
        vec!["--store", &url],
        vec!["--store", &url, "--data", known],
    ] {
        let gateway = Gateway::start(["serve"].iter().chain(&flags));
        let client = Client::new(gateway.address());
        let first = client
            .put("/docs/a", &[("if-none-match", "*")], "one")
            .await
            .expect(201);
        client
            .put("/docs/a", &[("if-none-match", "*")], "two")
            .await
            .expect(412);
        client
            .put("/docs/a", &[("if-match", first.etag())], "three")
            .await
            .expect(200);
        client
            .put("/docs/a", &[("if-match", first.etag())], "four")
            .await
            .expect(412);
        assert_eq!(
            client.get("/docs/a", &[]).await.expect(200).text(),
            "three",
            "{flags:?}"
        );
        client.delete("/docs/a", &[]).await.expect(204);
    }
}

#[tokio::test]
async fn every_response_has_a_date_a_server_and_a_request_id() {
    let gateway = Gateway::on_folder(&[]);
    let client = Client::new(gateway.address());
    for path in ["/", "/none/none", "/-/health", "/-/nothing"] {
        let answer = client.get(path, &[("x-request-id", "mine-1")]).await;
        assert_eq!(
            (answer.header("server"), answer.header("x-request-id")),
            ("ifmatch", "mine-1"),
            "{path}"
        );
        assert!(answer.header("date").ends_with("GMT"), "{path}");
    }
    let own = client.get("/", &[("x-request-id", "two words")]).await;
    assert_eq!(own.header("x-request-id").len(), 32);
}

#[tokio::test]
async fn conditions_can_be_required() {
    let gateway = Gateway::on_folder(&["--require-conditions"]);
    let client = Client::new(gateway.address());
    client.put("/docs/a", &[], "one").await.expect(428);
    client
        .put("/docs/a", &[("if-none-match", "*")], "one")
        .await
        .expect(201);
    client.delete("/docs/a", &[]).await.expect(428);
    client.get("/docs/a", &[]).await.expect(200);
}

#[tokio::test]
async fn a_closed_stderr_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // The reader of the pipe ends before the first line.
    let mut command = in_shell(r#"mkfifo "$LOG" && { : <"$LOG" & exec "$0" "$@" 2>"$LOG"; }"#);
    command
        .env("LOG", folder.path().join("log"))
        .args(["serve", "--listen", "127.0.0.1:0", "--access-log", "--data"])
        .arg(folder.path().join("data"));
    let mut gateway = Gateway::launch(command);
    let client = Client::new(gateway.address());
    client.put("/docs/a", &[], "12345").await.expect(201);
    client.get("/docs/a", &[]).await.expect(200);
    assert_eq!(gateway.stop().status.code(), Some(0));
}
