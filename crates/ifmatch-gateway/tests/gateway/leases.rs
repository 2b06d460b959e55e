//! Leases for operators: the endpoint `/-/leases`, the command and the metrics.

use std::process::Output;

use http::Method;
use serde_json::{Value, json};
use support::azure::Azure;
use support::raw::{Connection, exchange};
use support::{Answer, Client, Gateway};

use crate::frames::{self, INITIAL_WINDOW_SIZE, PREFACE, SETTINGS, frame, setting};
use crate::{eventually, get, serve, wait_for};

const A: &str = "936da01f-9abd-4d9d-80c7-02af85c822a8";
const B: &str = "11111111-9abd-4d9d-80c7-02af85c822a8";
const JSON: (&str, &str) = ("content-type", "application/json");

struct Setup {
    gateway: Gateway,
    client: Client,
    azure: Azure,
    folder: tempfile::TempDir,
}

/// A gateway with the container `docs` and the blobs `a`, `b` and `plain` in it.
async fn setup(flags: &[&str]) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), flags);
    let client = Client::new(gateway.address());
    let azure = Azure::development(client.clone());
    azure.create_container("docs").await.expect(201);
    for name in ["a", "b", "plain"] {
        azure
            .put(&format!("/docs/{name}"), &[], "one")
            .await
            .expect(201);
    }
    Setup {
        gateway,
        client,
        azure,
        folder,
    }
}

impl Setup {
    async fn acquire(&self, path: &str, id: &str, seconds: &str) -> Answer {
        let headers = [
            ("x-ms-lease-duration", seconds),
            ("x-ms-proposed-lease-id", id),
        ];
        self.azure.lease(path, "acquire", &headers).await
    }

    async fn paths(&self, query: &str) -> Vec<String> {
        let listing = self
            .client
            .get(&format!("/-/leases{query}"), &[])
            .await
            .expect(200)
            .json();
        let leases = listing["leases"].as_array().unwrap();
        leases
            .iter()
            .map(|lease| lease["path"].as_str().unwrap().to_owned())
            .collect()
    }

    /// `ifmatch lease …` against this gateway.
    fn command(&self, args: &[&str]) -> Output {
        command(&self.gateway.url(""), args)
    }
}

fn command(url: &str, args: &[&str]) -> Output {
    Gateway::command()
        .arg("lease")
        .args(args)
        .args(["--url", url])
        .output()
        .unwrap()
}

#[track_caller]
fn stdout(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    std::str::from_utf8(&output.stdout).unwrap()
}

#[tokio::test]
async fn the_listing_omits_lease_ids() {
    let setup = setup(&[]).await;
    setup.acquire("/docs/a", A, "-1").await.expect(201);
    setup.acquire("/docs/b", B, "60").await.expect(201);
    setup
        .acquire("/docs?restype=container", A, "60")
        .await
        .expect(201);
    assert_eq!(setup.paths("").await, ["docs", "docs/a", "docs/b"]);
    let listing = setup.client.get("/-/leases", &[]).await.expect(200);
    assert!(
        !listing.text().contains(A) && !listing.text().contains(B),
        "{}",
        listing.text()
    );
    let listing = listing.json();
    let [_, a, b] = &listing["leases"].as_array().unwrap()[..] else {
        panic!("{listing}")
    };
    assert_eq!(
        (&a["state"], &a["infinite"], &a["remaining"]),
        (&json!("leased"), &json!(true), &json!(null))
    );
    assert_eq!(
        (&b["state"], &b["infinite"], &b["duration"]),
        (&json!("leased"), &json!(false), &json!(60))
    );
    assert!((1..=60).contains(&b["remaining"].as_u64().unwrap()), "{b}");
    assert!(b["token"].as_u64() > a["token"].as_u64(), "{listing}");
    assert_eq!(
        setup
            .client
            .get("/-/leases/docs/a", &[])
            .await
            .expect(200)
            .json(),
        *a
    );
    let none = setup
        .client
        .get("/-/leases/docs/plain", &[])
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&none["state"], &none["token"]),
        (&json!("available"), &json!(null))
    );
}

#[tokio::test]
async fn listings_have_pages_and_prefixes() {
    let setup = setup(&[]).await;
    setup.azure.create_container("docs-2").await.expect(201);
    for path in ["/docs/x y/ü", "/docs-2/a"] {
        let path = path.replace(' ', "%20").replace('ü', "%C3%BC");
        setup.azure.put(&path, &[], "one").await.expect(201);
        setup.acquire(&path, A, "-1").await.expect(201);
    }
    setup.acquire("/docs/b", A, "-1").await.expect(201);
    setup
        .acquire("/docs?restype=container", A, "-1")
        .await
        .expect(201);
    let all = ["docs", "docs/b", "docs/x y/ü", "docs-2/a"];
    assert_eq!(setup.paths("").await, all);
    assert_eq!(setup.paths("?prefix=docs%2F").await, all[1..3]);
    assert_eq!(setup.paths("?prefix=docs/x%20").await, all[2..3]);
    assert_eq!(setup.paths("?prefix=docs-").await, all[3..]);
    assert_eq!(setup.paths("?prefix=d").await, all);
    assert!(setup.paths("?prefix=e").await.is_empty());
    let (mut found, mut after) = (Vec::new(), String::new());
    for _ in 0..all.len() {
        let page = setup
            .client
            .get(&format!("/-/leases?limit=1{after}"), &[])
            .await
            .expect(200)
            .json();
        found.push(page["leases"][0]["path"].as_str().unwrap().to_owned());
        let next = page["next"].as_str().unwrap();
        after = format!("&after={}", next.replace(' ', "%20").replace('ü', "%C3%BC"));
    }
    assert_eq!(found, all);
    let end = setup
        .client
        .get(&format!("/-/leases?limit=1{after}"), &[])
        .await
        .expect(200)
        .json();
    assert_eq!(end, json!({ "leases": [], "next": null }));
}

/// They continue behind their last lease. An operator's page of them counts until it is sent.
#[tokio::test]
async fn pages_of_leases_end_by_bytes() {
    const COUNT: usize = 600;
    let mut setup = setup(&["--console", "127.0.0.1:0"]).await;
    let name = |number: usize| format!("docs/{}{number:03}", "n".repeat(1000));
    for number in 0..COUNT {
        let path = format!("/{}", name(number));
        setup.azure.put(&path, &[], "x").await.expect(201);
        setup.acquire(&path, A, "-1").await.expect(201);
    }
    let (mut found, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = setup
            .client
            .get(&format!("/-/leases?prefix=docs/n{after}"), &[])
            .await
            .expect(200);
        let length = page.body.len();
        assert!(length < 1_300_000, "a page has {length} bytes");
        let page = page.json();
        found.extend(
            page["leases"]
                .as_array()
                .unwrap()
                .iter()
                .map(|lease| lease["path"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert!(
        found.into_iter().eq((0..COUNT).map(name)),
        "the pages have all leases in order"
    );
    assert_eq!(pages, 2);

    let console = setup.gateway.line_after("console on ");
    let console = console
        .trim()
        .trim_start_matches("http://")
        .parse()
        .unwrap();
    let mut unread = Connection::open(console);
    let no_window = frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, 0));
    unread.send([PREFACE, &no_window, &frames::get(1, "/leases")].concat());
    let occupied = || {
        let metrics = exchange(setup.gateway.address(), get("/-/metrics"));
        let line = metrics
            .text()
            .lines()
            .find_map(|line| line.strip_prefix("ifmatch_document_bytes "));
        line.and_then(|bytes| bytes.parse::<usize>().ok()).unwrap()
    };
    eventually("the page occupies memory", || {
        (occupied() > 1 << 20).then_some(())
    });
    drop(unread);
    wait_for(&setup.gateway, "ifmatch_document_bytes 0");
}

#[tokio::test]
async fn an_operator_breaks_a_lease_without_its_id() {
    let setup = setup(&[]).await;
    let (client, azure) = (&setup.client, &setup.azure);
    setup.acquire("/docs/a", A, "-1").await.expect(201);
    azure.put("/docs/a", &[], "two").await.expect(412);
    let command = json!({ "action": "break", "period": 0 }).to_string();
    let broken = client
        .request(Method::POST, "/-/leases/docs/a", &[JSON], command.clone())
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&broken["state"], &broken["remaining"]),
        (&json!("broken"), &json!(null))
    );
    let late = azure
        .put("/docs/a", &[("x-ms-lease-id", A)], "two")
        .await
        .expect(412);
    assert_eq!(late.header("x-ms-error-code"), "LeaseLost");
    azure.put("/docs/a", &[], "two").await.expect(201);
    let answer = client
        .request(Method::POST, "/-/leases/docs/a", &[JSON], command.clone())
        .await
        .expect(409)
        .json();
    assert_eq!(answer["code"], "LeaseNotPresentWithLeaseOperation");

    setup
        .acquire("/docs?restype=container", A, "-1")
        .await
        .expect(201);
    azure
        .blob(Method::DELETE, "/docs?restype=container", &[], "")
        .await
        .expect(412);
    client
        .request(Method::POST, "/-/leases/docs", &[JSON], command)
        .await
        .expect(200);
    azure
        .blob(Method::DELETE, "/docs?restype=container", &[], "")
        .await
        .expect(202);
}

#[tokio::test]
async fn a_breaking_lease_locks_until_its_period_ends() {
    let setup = setup(&[]).await;
    setup.acquire("/docs/a", A, "-1").await.expect(201);
    let command = json!({ "action": "break", "period": 60 }).to_string();
    let broken = setup
        .client
        .request(Method::POST, "/-/leases/docs/a", &[JSON], command)
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&broken["state"], &broken["remaining"]),
        (&json!("breaking"), &json!(60))
    );
    setup.azure.put("/docs/a", &[], "two").await.expect(412);
    setup
        .azure
        .put("/docs/a", &[("x-ms-lease-id", A)], "two")
        .await
        .expect(201);
}

#[tokio::test]
async fn invalid_commands_change_nothing() {
    let setup = setup(&[]).await;
    setup.acquire("/docs/a", A, "-1").await.expect(201);
    let post = |path: &'static str, headers: &'static [(&str, &str)], body: String| {
        let client = setup.client.clone();
        async move {
            client
                .request(Method::POST, path, headers, body)
                .await
                .status
                .as_u16()
        }
    };
    let command = r#"{"action":"break"}"#;
    // Requests that web pages can send to other sites without a CORS preflight.
    for media_type in [
        &[][..],
        &[("content-type", "text/plain")],
        &[("content-type", "application/x-www-form-urlencoded")],
    ] {
        assert_eq!(
            post("/-/leases/docs/a", media_type, command.into()).await,
            415,
            "{media_type:?}"
        );
    }
    for body in [
        "",
        "{}",
        "[]",
        r#"{"action":"steal"}"#,
        r#"{"action":"break","period":61}"#,
        r#"{"action":"break","period":-1}"#,
        r#"{"action":"break","perod":1}"#,
        &format!("{command}{}", " ".repeat(2_000)),
    ] {
        assert_eq!(
            post("/-/leases/docs/a", &[JSON], body.to_owned()).await,
            400,
            "{body}"
        );
    }
    for (path, status) in [
        ("/-/leases", 405),
        ("/-/leases/", 405),
        ("/-/leases/docs/none", 404),
        ("/-/leases/none", 404),
        ("/-/leases/none/a", 404),
        ("/-/leases/docs/../a", 400),
        ("/-/leases/-blocks/a", 400),
        ("/-/leases//a", 400),
        ("/-/leasesdocs/a", 404),
    ] {
        assert_eq!(
            post(path, &[JSON], command.to_owned()).await,
            status,
            "{path}"
        );
    }
    for path in [
        "/-/leases?limit=0",
        "/-/leases?limit=x",
        "/-/leases?prefx=a",
        "/-/leases?after=-",
    ] {
        setup.client.get(path, &[]).await.expect(400);
    }
    setup
        .client
        .delete("/-/leases/docs/a", &[])
        .await
        .expect(405);
    assert_eq!(
        setup
            .client
            .get("/-/leases/docs/a", &[])
            .await
            .expect(200)
            .json()["state"],
        "leased"
    );
}

#[tokio::test]
async fn reading_needs_a_token_and_breaking_a_write_token() {
    let flags = [
        "--read-token",
        "r",
        "--write-token",
        "w",
        "--accounts",
        "devstoreaccount1",
    ];
    let setup = setup(&flags).await;
    setup.acquire("/docs/a", A, "-1").await.expect(201);
    let (read, write) = (("authorization", "Bearer r"), ("authorization", "Bearer w"));
    let command = r#"{"action":"break","period":0}"#;
    for path in ["/-/leases", "/-/leases/docs/a", "/-/leases/docs/none"] {
        setup.client.get(path, &[]).await.expect(401);
    }
    setup.client.get("/-/leases", &[read]).await.expect(200);
    setup
        .client
        .request(Method::POST, "/-/leases/docs/a", &[JSON], command)
        .await
        .expect(401);
    setup
        .client
        .request(Method::POST, "/-/leases/docs/a", &[JSON, read], command)
        .await
        .expect(403);
    setup.azure.put("/docs/a", &[], "two").await.expect(412);
    setup
        .client
        .request(Method::POST, "/-/leases/docs/a", &[JSON, write], command)
        .await
        .expect(200);
    let refused = setup.command(&["list", "--token", "no"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("401"),
        "{refused:?}"
    );
    assert!(stdout(&setup.command(&["list", "--token", "r"])).contains("docs/a"));
}

#[tokio::test]
async fn the_command_lists_shows_and_breaks() {
    let mut setup = setup(&[]).await;
    assert_eq!(stdout(&setup.command(&["list"])), "no leases\n");
    setup.acquire("/docs/a", A, "-1").await.expect(201);
    setup.acquire("/docs/b", B, "60").await.expect(201);
    let list = setup.command(&["list"]);
    let lines: Vec<&str> = stdout(&list).lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].starts_with("STATE")
            && lines[1].contains("no end")
            && lines[1].ends_with("docs/a"),
        "{lines:?}"
    );
    assert!(stdout(&setup.command(&["list", "docs/b"])).lines().count() == 2);
    let json = setup.command(&["list", "--json"]);
    let leases: Vec<Value> = stdout(&json)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        leases
            .iter()
            .map(|lease| &lease["path"])
            .collect::<Vec<_>>(),
        ["docs/a", "docs/b"]
    );
    assert!(stdout(&setup.command(&["show", "docs/a"])).contains("leased"));
    assert!(stdout(&setup.command(&["break", "/docs/a", "--period", "0"])).contains("broken"));
    setup.azure.put("/docs/a", &[], "two").await.expect(201);
    for (args, code, expected) in [
        (
            &["show", "docs/none"][..],
            1,
            "no such blob: docs/none. `ifmatch lease list` shows all leases.",
        ),
        (&["break", "docs/a"], 1, "docs/a: there is no lease"),
        (&["show", "docs/../a"], 2, "CONTAINER/BLOB"),
        (&["break", "docs/b", "--period", "61"], 2, "from 0 to 60"),
        (&["break"], 2, "<PATH>"),
    ] {
        let output = setup.command(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
    let url = setup.gateway.url("");
    setup.gateway.stop();
    let gone = command(&url, &["list"]);
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    assert!(
        String::from_utf8_lossy(&gone.stderr).contains("refused"),
        "{gone:?}"
    );
    assert_eq!(command("nonsense", &["list"]).status.code(), Some(2));
    let help = Gateway::command()
        .args(["lease", "break", "--help"])
        .output()
        .unwrap();
    assert!(
        stdout(&help).contains("ifmatch lease break docs/leader.lock"),
        "{help:?}"
    );
}

/// Expired leases are counted as time passes, the others by operations.
#[tokio::test]
async fn the_metrics_count_lease_operations() {
    let setup = setup(&[]).await;
    setup.acquire("/docs/a", A, "-1").await.expect(201);
    setup.acquire("/docs/a", B, "-1").await.expect(409);
    setup.acquire("/docs/b", B, "15").await.expect(201);
    setup.azure.put("/docs/a", &[], "x").await.expect(412);
    setup
        .azure
        .put("/docs/a", &[("x-ms-lease-id", B)], "x")
        .await
        .expect(412);
    setup
        .azure
        .lease("/docs/a", "renew", &[("x-ms-lease-id", A)])
        .await
        .expect(200);
    let outcome = |name: &str, count: u32| {
        format!("ifmatch_lease_operations_total{{outcome=\"{name}\"}} {count}")
    };
    wait_for(&setup.gateway, "ifmatch_leases_held 2");
    for (name, count) in [
        ("acquired", 2),
        ("renewed", 1),
        ("refused", 3),
        ("broken", 0),
        ("expired", 0),
    ] {
        wait_for(&setup.gateway, &outcome(name, count));
    }
    setup
        .azure
        .lease("/docs/a", "break", &[("x-ms-lease-break-period", "0")])
        .await
        .expect(202);
    wait_for(&setup.gateway, &outcome("broken", 1));
    wait_for(&setup.gateway, &outcome("expired", 1));
    wait_for(&setup.gateway, "ifmatch_leases_held 0");
    setup.acquire("/docs/b", A, "-1").await.expect(201);
    setup.acquire("/docs/plain", A, "-1").await.expect(201);
    setup
        .azure
        .blob(Method::DELETE, "/docs/plain", &[("x-ms-lease-id", A)], "")
        .await
        .expect(202);
    wait_for(&setup.gateway, "ifmatch_leases_held 1");
    setup
        .azure
        .lease("/docs/b", "release", &[("x-ms-lease-id", A)])
        .await
        .expect(200);
    wait_for(&setup.gateway, &outcome("released", 1));
    wait_for(&setup.gateway, "ifmatch_leases_held 0");
    wait_for(&setup.gateway, &outcome("expired", 1));
}

#[tokio::test]
async fn leases_survive_a_restart_and_are_counted_again() {
    let mut setup = setup(&[]).await;
    setup.acquire("/docs/a", A, "-1").await.expect(201);
    setup
        .acquire("/docs?restype=container", A, "-1")
        .await
        .expect(201);
    setup.gateway.kill();
    let gateway = serve(setup.folder.path(), &[]);
    wait_for(&gateway, "ifmatch_leases_held 2");
    let azure = Azure::development(Client::new(gateway.address()));
    azure.put("/docs/a", &[], "two").await.expect(412);
    azure
        .put("/docs/a", &[("x-ms-lease-id", A)], "two")
        .await
        .expect(201);
    azure
        .blob(
            Method::DELETE,
            "/docs?restype=container",
            &[("x-ms-lease-id", A)],
            "",
        )
        .await
        .expect(202);
    wait_for(&gateway, "ifmatch_leases_held 0");
}

/// The leases of an object store are kept in the folder of `--data`, if set.
#[tokio::test]
async fn leases_of_an_object_store_need_a_folder_to_survive_a_restart() {
    let (objects, known) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", objects.path().to_str().unwrap());
    let flags = [
        "serve",
        "--store",
        &url,
        "--data",
        known.path().to_str().unwrap(),
    ];
    let acquire = [("x-ms-lease-duration", "-1"), ("x-ms-proposed-lease-id", A)];
    let mut gateway = Gateway::start(flags);
    let azure = Azure::development(Client::new(gateway.address()));
    azure.create_container("docs").await.expect(201);
    azure.put("/docs/a", &[], "one").await.expect(201);
    azure
        .lease("/docs/a", "acquire", &acquire)
        .await
        .expect(201);
    gateway.kill();
    let mut gateway = Gateway::start(flags);
    let azure = Azure::development(Client::new(gateway.address()));
    azure.put("/docs/a", &[], "two").await.expect(412);
    azure
        .put("/docs/a", &[("x-ms-lease-id", A)], "two")
        .await
        .expect(201);
    let list = command(&gateway.url(""), &["list"]);
    assert!(stdout(&list).contains("docs/a"), "{list:?}");
    gateway.stop();

    let others = tempfile::tempdir().unwrap();
    let url = format!("file://{}", others.path().to_str().unwrap());
    let gateway = Gateway::start(["serve", "--store", &url]);
    let azure = Azure::development(Client::new(gateway.address()));
    azure.create_container("docs").await.expect(201);
    azure.put("/docs/a", &[], "one").await.expect(201);
    let refused = azure.lease("/docs/a", "acquire", &acquire).await;
    assert!(refused.expect(501).text().contains("--data"));
}

/// A client with a token acquires a lease, and operators see its holder.
#[tokio::test]
async fn the_holder_of_a_lease_is_shown() {
    let gateway = Gateway::on_folder(&["--write-token", "w", "--read-token", "r"]);
    let client = Client::new(gateway.address());
    let write = ("authorization", "Bearer w");
    client.put("/docs/a", &[write], "").await.expect(201);
    let [duration, holder] = [
        ("lease-duration", "60"),
        ("lease-holder", "backup on host-7"),
    ];
    let acquire = async |token| {
        client
            .request(
                Method::POST,
                "/docs/a?lease",
                &[duration, holder, token],
                "",
            )
            .await
    };
    acquire(("authorization", "Bearer r")).await.expect(403);
    let lease = acquire(write).await.expect(201);
    let shown = client
        .get("/-/leases/docs/a", &[("authorization", "Bearer r")])
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&shown["holder"], shown["token"].to_string()),
        (
            &json!("backup on host-7"),
            lease.header("lease-token").to_owned()
        )
    );
    let listed = command(&gateway.url(""), &["list", "--token", "r"]);
    assert!(
        stdout(&listed)
            .lines()
            .nth(1)
            .unwrap()
            .contains("backup on host-7"),
        "{listed:?}"
    );
    client.put("/docs/a", &[write], "x").await.expect(412);
    let id = ("lease-id", lease.header("lease-id"));
    client
        .request(Method::DELETE, "/docs/a?lease", &[write, id], "")
        .await
        .expect(204);
}
