//! Runs the bodies of the fuzz targets on the seeds in `tests/data/seeds`, damaged seeds, and random bytes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

mod fuzz_bodies;

#[test]
fn tag_list() {
    run("tag_list", fuzz_bodies::tag_list);
}

#[test]
fn http_date() {
    run("http_date", fuzz_bodies::http_date);
}

#[test]
fn range() {
    run("range", fuzz_bodies::range);
}

#[test]
fn digest_header() {
    run("digest_header", fuzz_bodies::digest_header);
}

#[test]
fn lease_id() {
    run("lease_id", fuzz_bodies::lease_id);
}

#[test]
fn record_decode() {
    run("record_decode", fuzz_bodies::record_decode);
}

fn run(target: &str, body: fn(&[u8])) {
    let seeds = seeds(target);
    for seed in &seeds {
        body(seed);
    }
    let damage = vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..6);
    let damaged =
        (prop::sample::select(seeds), damage).prop_map(|(seed, damage)| damaged(seed, &damage));
    let input = prop_oneof![1 => vec(any::<u8>(), 0..200), 3 => damaged];
    proptest!(ProptestConfig::with_cases(2_000), |(input in input)| body(&input));
}

fn damaged(mut seed: Vec<u8>, damage: &[(prop::sample::Index, u8, u8)]) -> Vec<u8> {
    for (at, byte, kind) in damage {
        let at = at.index(seed.len() + 1);
        match kind {
            0 => seed.insert(at, *byte),
            1 => seed.truncate(at),
            2 => seed.extend_from_within(..at),
            _ => seed
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|old| *old = *byte),
        }
    }
    seed
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/seeds")
        .join(target);
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let seeds: Vec<_> = files.map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty());
    seeds
}
