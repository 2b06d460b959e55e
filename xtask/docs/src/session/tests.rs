//! The pages with sessions.

use std::process::{Child, Command};

use super::*;

fn page(path: &str, section: Option<&str>) -> Page {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    let page = Page::parse(&fs::read_to_string(file).unwrap(), section);
    assert!(!page.steps().is_empty(), "{path} has no session");
    page
}

fn run(path: &str, places: &[(&str, &str)]) {
    Session::start(places)
        .unwrap()
        .run(&page(path, None))
        .unwrap();
}

#[test]
fn the_readme_is_true() {
    Session::start(&[])
        .unwrap()
        .run(&page("README.md", Some("A session")))
        .unwrap();
}

#[test]
fn the_readme_is_true_of_leases() {
    let mut session = Session::start(&[]).unwrap();
    session.serve(DEFAULT_SERVER).unwrap();
    // The README acquires the lease in Python: tests/sdk/python/test_guide.py runs that part.
    for command in [
        "echo 'hello, world' > hello.txt",
        "curl --fail -T hello.txt http://127.0.0.1:10000/docs/hello.txt",
        "curl --fail -X POST -H 'Lease-Duration: 60' http://127.0.0.1:10000/docs/hello.txt?lease",
    ] {
        assert_eq!(session.output(command).unwrap(), [""; 0]);
    }
    session
        .run(&page("README.md", Some("With Azure's SDKs")))
        .unwrap();
}

#[test]
fn the_quickstart_is_true() {
    run("docs/quickstart.md", &[]);
}

#[test]
fn the_page_about_leases_is_true() {
    run("docs/leases.md", &[]);
}

#[test]
fn the_page_about_the_client_is_true() {
    run("docs/client.md", &[]);
}

#[test]
fn the_page_about_operations_is_true_of_backups_and_damage() {
    let folders = tempfile::tempdir().unwrap();
    let (data, backup) = (folders.path().join("data"), folders.path().join("backup"));
    let mut session = Session::start(&[
        ("/var/lib/ifmatch", data.to_str().unwrap()),
        ("/mnt/backup/ifmatch", backup.to_str().unwrap()),
    ])
    .unwrap();
    session
        .serve("ifmatch serve --data /var/lib/ifmatch")
        .unwrap();
    for (name, bytes) in [("report.pdf", 100_000), ("one", 11), ("two", 11)] {
        fs::write(session.folder.path().join(name), vec![0; bytes]).unwrap();
        let stored = session
            .output(&format!(
                "curl --fail -T {name} http://127.0.0.1:10000/docs/{name}"
            ))
            .unwrap();
        assert_eq!(stored, [""; 0]);
    }
    session
        .run(&page("docs/operations.md", Some("Back up")))
        .unwrap();
    let files =
        session.output("for body in /mnt/backup/ifmatch/bodies/*/*; do printf y | dd of=$body conv=notrunc status=none; echo $body; done").unwrap();
    assert_eq!(files.len(), 1, "{files:?}");
    session
        .run(&page("docs/operations.md", Some("Verify the bodies")))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_about_operations_is_true_of_moved_records() {
    let database = ifmatch_testbed::postgres::start(&[]).await;
    let folders = tempfile::tempdir().unwrap();
    let (objects, records) = (
        folders.path().join("objects"),
        folders.path().join("records"),
    );
    fs::create_dir(&objects).unwrap();
    let objects = format!("file://{}", objects.display());
    let mut session = Session::start(&[
        (
            "postgres://postgres@127.0.0.1:5432/postgres",
            &database.url(),
        ),
        ("s3://my-bucket", &objects),
        ("/var/lib/ifmatch", records.to_str().unwrap()),
    ])
    .unwrap();
    session
        .serve("ifmatch serve --store s3://my-bucket --data /var/lib/ifmatch")
        .unwrap();
    let stored = session
        .output("curl --fail -X PUT -d report http://127.0.0.1:10000/docs/report.pdf")
        .unwrap();
    assert_eq!(stored, [""; 0]);
    session.stop();
    session
        .run(&page(
            "docs/operations.md",
            Some("Move the records from redb to PostgreSQL"),
        ))
        .unwrap();
}

#[test]
fn the_guide_for_locks_is_true() {
    run("docs/howto/lock.md", &[]);
}

#[test]
fn the_guide_for_the_proxy_is_true() {
    let port = listening::free_address().unwrap().port().to_string();
    run("docs/howto/proxy.md", &[("8000", &port)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_for_postgresql_is_true() {
    let database = ifmatch_testbed::postgres::start(&[]).await;
    let blobs = tempfile::tempdir().unwrap();
    let places = [
        (
            "postgres://postgres@127.0.0.1:5432/postgres",
            &*database.url(),
        ),
        ("/tmp/blobs", blobs.path().to_str().unwrap()),
    ];
    run("docs/howto/postgres.md", &places);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_from_a_folder_to_three_gateways_is_true() {
    let database = ifmatch_testbed::postgres::start(&[]).await;
    let bucket = tempfile::tempdir().unwrap();
    let objects = format!("file://{}", bucket.path().display());
    let places = [
        (
            "postgres://postgres@127.0.0.1:5432/postgres",
            &*database.url(),
        ),
        ("s3://my-bucket", &objects),
    ];
    let mut session = Session::start(&places).unwrap();
    session
        .run(&page("docs/howto/grow.md", Some("One gateway")))
        .unwrap();
    session.stop();
    session
        .run(&page("docs/howto/grow.md", Some("Move")))
        .unwrap();
    session
        .run(&page("docs/howto/grow.md", Some("Back up")))
        .unwrap();
}

#[test]
fn the_guide_for_axum_is_true() {
    struct Example(Child);
    impl Drop for Example {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }
    let address = listening::free_address().unwrap();
    let program = support::example("quickstart");
    let mut example = Example(
        Command::new(program)
            .arg(address.to_string())
            .spawn()
            .unwrap(),
    );
    let still_runs = || match example.0.try_wait()? {
        None => Ok(()),
        Some(status) => Err(status.to_string().into()),
    };
    listening::wait("the example", address, still_runs).unwrap();
    run(
        "docs/howto/axum.md",
        &[("127.0.0.1:3000", &address.to_string())],
    );
}

#[test]
fn all_pages_with_sessions_run() {
    let tests = include_str!("tests.rs");
    let unknown = pages().into_iter().filter(|(path, text)| {
        text.contains("```console\n") && !tests.contains(&format!("\"{path}\""))
    });
    let unknown: Vec<_> = unknown.map(|(path, _)| path).collect();
    assert_eq!(unknown, [""; 0], "add the pages to this file");
}

#[test]
fn commands_that_do_not_run_say_why() {
    let unexplained = pages().into_iter().flat_map(|(path, text)| {
        Page::unexplained(&text)
            .into_iter()
            .map(move |line| format!("{path}: {line}"))
    });
    let unexplained: Vec<_> = unexplained.collect();
    assert_eq!(
        unexplained, [""; 0],
        "make it `console`, or write <!-- not run: reason --> or <!-- run by TEST --> in front of it"
    );
}

/// Returns README.md and the pages in docs/, each with its path.
fn pages() -> Vec<(String, String)> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/howto", "docs/proxy", "docs/reference"] {
        let files = fs::read_dir(repository.join(folder)).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        paths.extend(
            names.filter_map(|name| Some(format!("{folder}/{}.md", name.strip_suffix(".md")?))),
        );
    }
    paths
        .into_iter()
        .map(|path| {
            (
                path.clone(),
                fs::read_to_string(repository.join(&path)).unwrap(),
            )
        })
        .collect()
}

#[test]
fn other_output_is_an_error() {
    let wrong = Page::parse("```console\n$ echo one\ntwo\n```\n", None);
    let error = Session::start(&[("-", "-")])
        .unwrap()
        .run(&wrong)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`echo one` does not print `two`, but\none"
    );
}
