//! `ifmatch proxy` between real clients and a scripted origin.

mod answers;
mod bodies;
mod encrypted;
mod endpoints;
mod guarded;
mod http2;
mod reload;
mod routes;
mod trouble;

use support::origin::Origin;
use support::raw::exchange;
use support::{Answer, Gateway, eventually};

/// Starts a proxy in front of this origin.
fn before(origin: &Origin, flags: &[&str]) -> Gateway {
    let upstream = origin.url();
    Gateway::start(["proxy", "--upstream", &upstream].iter().chain(flags))
}

fn get(gateway: &Gateway, path: &str, fields: &str) -> Answer {
    exchange(
        gateway.address(),
        format!("GET {path} HTTP/1.1\r\nhost: example.com\r\n{fields}\r\n"),
    )
}

/// Sends requests until the response is stored.
#[track_caller]
fn store(gateway: &Gateway, path: &str) {
    eventually("a hit", || {
        is_hit(&get(gateway, path, "").expect(200)).then_some(())
    });
}

/// Returns the field `Cache-Status`.
fn status(answer: &Answer) -> &str {
    answer.header("cache-status")
}

/// Returns `true` if our cache, the last in `Cache-Status`, had the response.
fn is_hit(answer: &Answer) -> bool {
    let mut members = answer.headers.get_all("cache-status").iter();
    members
        .next_back()
        .is_some_and(|own| own.to_str().unwrap().starts_with("ifmatch; hit; ttl"))
}
