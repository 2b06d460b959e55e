//! The examples of the client run against the gateway, and are short.

use std::path::PathBuf;
use std::process::Command;

use support::build;

use crate::serve;

/// Maximum number of lines of an example.
const MAX_LINES: usize = 40;

/// Each example, and a line that it must print.
const EXAMPLES: [(&str, &[&str]); 12] = [
    ("optimistic_update", &["Bert must read again", "draft, edited by Anna"]),
    ("pessimistic_update", &["2 lines, written under a lock"]),
    ("retry_with_backoff", &["80 visits"]),
    ("cached_download", &["unchanged: true", "changed: true"]),
    ("cached_fetch", &["rain, from the cache: true", "sun, from the cache: false", "sun, from the cache: true"]),
    ("leader_election", &["one leads", "two leads", "different terms: true"]),
    ("distributed_lock", &["a second holder: false", "a larger token: true"]),
    ("work_queue", &["1.jpg after 1 attempts", "broken.jpg after 3 attempts"]),
    ("configuration", &["limit 10", "limit 20"]),
    ("counter", &["40 hits"]),
    ("several_documents", &["sum 0"]),
    ("replace_by_tag", &["saved over the milk: false"]),
];

#[test]
fn each_example_runs_against_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path());
    let chosen: Vec<&str> = EXAMPLES.iter().flat_map(|(name, _)| ["--example", name]).collect();
    let programs: PathBuf = build(&chosen).parent().unwrap().to_owned();
    for (name, expected) in EXAMPLES {
        let output = Command::new(programs.join(name)).arg(gateway.url("/box")).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{name}: {shown}{}", String::from_utf8_lossy(&output.stderr));
        for line in expected {
            assert!(shown.lines().any(|shown| shown == *line), "{name}: {line:?} is not in {shown}");
        }
    }
}

#[test]
fn each_example_is_short() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/client");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= MAX_LINES, "{}: {lines} lines", path.display());
        files += 1;
    }
    assert_eq!(files, EXAMPLES.len());
}
