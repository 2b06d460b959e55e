//! Times of the layer compared with the bare service, and of its most expensive parts. Compare only within one run.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at an unexpected result"
)]

mod scenes;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use http::HeaderMap;
use http::header::IF_NONE_MATCH;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use scenes::Bare;

fn services(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("services");
    for (name, len) in [("1 KiB", 1024), ("64 KiB", 65_536)] {
        let mut bare = Bare::of(len);
        group.bench_function(format!("bare 200, {name}"), |bencher| {
            bencher.iter_batched(
                || scenes::get(None),
                |get| scenes::answer(&mut bare, get),
                BatchSize::SmallInput,
            );
        });
        let mut layered = Bare::of(len).layered();
        let tag = scenes::warm(&mut layered);
        group.bench_function(format!("layer 200, {name} hashed"), |bencher| {
            bencher.iter_batched(
                || scenes::get(None),
                |get| scenes::answer(&mut layered, get),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(format!("layer 304 from memory, {name}"), |bencher| {
            let request = || scenes::get(Some(&tag));
            bencher.iter_batched(
                request,
                |get| scenes::answer(&mut layered, get),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decisions");
    for count in [1_u8, 10] {
        let tags: Vec<String> = (0..count)
            .map(|number| ContentHash::of(&[number]).content_tag().to_string())
            .collect();
        let headers = HeaderMap::from_iter([(IF_NONE_MATCH, tags.join(", ").parse().unwrap())]);
        group.bench_function(format!("parse If-None-Match, {count}"), |bencher| {
            bencher.iter(|| Preconditions::from_headers(black_box(&headers)));
        });
    }
    for len in [1024, 65_536] {
        let content = vec![b'x'; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("hash {len} bytes"), |bencher| {
            bencher.iter(|| ContentHash::of(black_box(&content)));
        });
    }
    group.finish();
}

criterion_group!(benches, services, decisions);
criterion_main!(benches);
