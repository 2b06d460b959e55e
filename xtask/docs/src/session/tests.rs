//! The pages with sessions.

use std::process::{Child, Command};

use super::*;

fn page(path: &str, section: Option<&str>) -> Page {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let page = Page::parse(&fs::read_to_string(file).unwrap(), section);
    assert!(!page.steps().is_empty(), "{path} has no session");
    page
}

fn run(path: &str, places: &[(&str, &str)]) {
    Session::start(places).unwrap().run(&page(path, None)).unwrap();
}

#[test]
fn the_readme_is_true() {
    Session::start(&[]).unwrap().run(&page("README.md", Some("A session"))).unwrap();
}

#[test]
fn the_quickstart_is_true() {
    run("docs/quickstart.md", &[]);
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
        ("postgres://postgres@127.0.0.1:5432/postgres", &*database.url()),
        ("/srv/blobs", blobs.path().to_str().unwrap()),
    ];
    run("docs/howto/postgres.md", &places);
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
    let program = support::build(&["--example", "quickstart"]);
    let _example = Example(Command::new(program).arg(address.to_string()).spawn().unwrap());
    listening::wait("the example", address).unwrap();
    run("docs/howto/axum.md", &[("127.0.0.1:3000", &address.to_string())]);
}

#[test]
fn other_output_is_an_error() {
    let wrong = Page::parse("```console\n$ echo one\ntwo\n```\n", None);
    let error = Session::start(&[("-", "-")]).unwrap().run(&wrong).unwrap_err();
    assert_eq!(error.to_string(), "`echo one` does not print `two`, but\none");
}
