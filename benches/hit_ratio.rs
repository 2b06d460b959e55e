//! Hit ratios of the cache over traces, compared with an LRU cache and the optimum.
//!
//! All objects have the same size, so the optimum is known (Belady: evict the object used furthest in the future).
//! The traces are the same in each run.
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "a program that prints a table"
)]

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use ifmatch_cache::CacheLayer;
use tower::{Layer, ServiceExt};

/// Size of an object, in bytes.
const SIZE: usize = 1_000;

/// Number of requests in a trace.
const REQUESTS: usize = 100_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    println!("| trace | capacity | LRU | ifmatch | optimum |");
    println!("|---|---|---|---|---|");
    for (name, trace) in traces() {
        let objects = trace.iter().collect::<BTreeSet<_>>().len();
        for share in [50, 10] {
            let room = (objects / share).max(100);
            let ratio = |hits: usize| format!("{:.3}", hits as f64 / trace.len() as f64);
            let ours = ratio(runtime.block_on(hits(&trace, room)));
            println!(
                "| {name} | {room} | {} | {ours} | {} |",
                ratio(lru(&trace, room)),
                ratio(optimum(&trace, room))
            );
        }
    }
}

/// Returns the traces, by name.
fn traces() -> [(&'static str, Vec<usize>); 4] {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let zipf = Zipf::new(20_000, 0.9);
    let mut mixed = Vec::new();
    // Popular objects that change over time, with occasional scans and loops.
    while mixed.len() < REQUESTS {
        let drift = mixed.len() / 20_000 * 300;
        for _ in 0..4_000 {
            mixed.push(zipf.draw(&mut dice) + drift);
        }
        let scan = 1_000_000 + mixed.len();
        mixed.extend(scan..scan + 1_500);
        mixed.extend((0..500).map(|at| 500_000 + at % 250));
    }
    mixed.truncate(REQUESTS);
    let hot = |at: usize, dice: &mut Dice| {
        if at.is_multiple_of(3) {
            dice.below(1_000)
        } else {
            1_000_000 + at
        }
    };
    [
        (
            "Zipf (0.9)",
            (0..REQUESTS).map(|_| zipf.draw(&mut dice)).collect(),
        ),
        (
            "hot set and scan",
            (0..REQUESTS).map(|at| hot(at, &mut dice)).collect(),
        ),
        ("loop", (0..REQUESTS).map(|at| at % 2_000).collect()),
        ("mixed", mixed),
    ]
}

/// Returns the hits of the cache. Names of equal length make objects of equal size.
async fn hits(trace: &[usize], room: usize) -> usize {
    let one = layer(1 << 20);
    ask(&one, 1_000_000).await;
    let each = one.handle().metrics().stored_bytes;
    let layer = layer(each * room as u64);
    for object in trace {
        ask(&layer, 1_000_000 + object).await;
    }
    usize::try_from(layer.handle().metrics().named("hit")).unwrap()
}

fn layer(capacity: u64) -> CacheLayer {
    CacheLayer::builder()
        .capacity(capacity)
        .entry_limit(SIZE as u64)
        .build()
}

async fn ask(layer: &CacheLayer, object: usize) {
    let origin = tower::service_fn(|_: Request<Full<Bytes>>| async {
        let response = Response::builder().header("cache-control", "max-age=86400");
        Ok::<_, Infallible>(
            response
                .body(Full::new(Bytes::from_static(&[b'x'; SIZE])))
                .unwrap(),
        )
    });
    let request = Request::get(format!("http://a.example/{object}"))
        .body(Full::default())
        .unwrap();
    let response = layer.layer(origin).oneshot(request).await.unwrap();
    response.into_body().collect().await.unwrap();
}

/// Returns the hits of an LRU cache.
fn lru(trace: &[usize], room: usize) -> usize {
    let (mut used, mut order) = (HashMap::new(), BTreeSet::new());
    let asked = |(now, object): &(usize, &usize)| {
        let before = used.insert(**object, *now);
        order.extend([(*now, **object)]);
        if let Some(before) = before {
            order.remove(&(before, **object));
        } else if used.len() > room {
            let (_, oldest) = order.pop_first().unwrap();
            used.remove(&oldest);
        }
        before.is_some()
    };
    trace.iter().enumerate().filter(asked).count()
}

/// Returns the hits of a cache that knows the future: it keeps the objects with the earliest next use.
fn optimum(trace: &[usize], room: usize) -> usize {
    let mut following = vec![usize::MAX; trace.len()];
    let mut seen = HashMap::new();
    for (at, object) in trace.iter().enumerate().rev() {
        following[at] = seen.insert(*object, at).unwrap_or(usize::MAX);
    }
    let (mut kept, mut order) = (HashMap::new(), BTreeSet::new());
    let mut hits = 0;
    for (at, object) in trace.iter().enumerate() {
        if let Some(wanted) = kept.insert(*object, following[at]) {
            order.remove(&(wanted, *object));
            hits += 1;
        }
        order.insert((following[at], *object));
        if kept.len() > room {
            let (_, last) = order.pop_last().unwrap();
            kept.remove(&last);
        }
    }
    hits
}

/// Pseudo-random numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, sides: usize) -> usize {
        usize::try_from(self.next() % sides as u64).unwrap()
    }
}

/// Ranks by Zipf's law.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(count: u32, exponent: f64) -> Self {
        let weight = |rank: u32| f64::from(rank).powf(-exponent);
        let sum: f64 = (1..=count).map(weight).sum();
        let mut below = 0.0;
        Self(
            (1..=count)
                .map(|rank| {
                    below += weight(rank) / sum;
                    below
                })
                .collect(),
        )
    }

    fn draw(&self, dice: &mut Dice) -> usize {
        let point = dice.next() as f64 / u64::MAX as f64;
        self.0.partition_point(|below| *below < point)
    }
}
