//! `--cache-dir`: bodies too large for the memory of the cache.

use std::fs;
use std::path::Path;

use support::run;

use super::origin::{Origin, ok};
use super::{before, get, status};
use crate::eventually;

fn bodies(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("ifmatch-body-")).count()
}

#[test]
fn large_bodies_are_served_from_the_folder_and_removed_after_a_crash() {
    let large = "0123456789".repeat(10_000);
    let content = large.clone();
    let origin = Origin::start(move |_| ok("cache-control: max-age=600\r\n", &content));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let flags = ["--cache", "1MiB", "--cache-body-size", "1KiB", "--cache-disk", "1MiB", "--cache-dir", path];
    let mut gateway = before(&origin, &flags);
    assert_eq!(get(&gateway, "/a", "").expect(200).text(), large);
    let hit =
        eventually("a hit", || Some(get(&gateway, "/a", "").expect(200)).filter(|hit| status(hit).contains("; hit")));
    assert_eq!(hit.text(), large);
    assert_eq!(get(&gateway, "/a", "range: bytes=65530-65545\r\n").expect(206).text(), &large[65_530..=65_545]);
    // A replaced body may be removed later.
    let left = bodies(folder.path());
    assert!(left >= 1);

    // Another process can use the folder only afterwards.
    let upstream = origin.url();
    let end = run(["proxy", "--upstream", &upstream, "--listen", "127.0.0.1:0"].iter().chain(&flags));
    assert_eq!(end.status.code(), Some(1), "{end:#?}");
    assert!(end.stderr.contains("--cache-dir"), "{end:#?}");
    gateway.kill();
    assert_eq!(bodies(folder.path()), left, "it was killed");
    let gateway = before(&origin, &flags);
    assert_eq!(bodies(folder.path()), 0);
    assert!(status(&get(&gateway, "/a", "").expect(200)).contains("fwd=uri-miss"));
}

#[test]
fn a_cache_folder_needs_memory() {
    let end = run(["proxy", "--upstream", "http://a", "--cache", "0", "--cache-dir", "d"]);
    assert_eq!(end.status.code(), Some(2), "{end:#?}");
    assert!(end.stderr.contains("--cache-dir needs --cache"), "{end:#?}");
}
