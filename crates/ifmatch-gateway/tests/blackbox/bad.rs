//! Malformed requests: each gets the right response and loses nothing.

use support::raw::{Case, Connection, cases, statuses};

use crate::site::Site;
use crate::suite::Suite;

const KEPT: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";

pub(crate) fn add(suite: &mut Suite) {
    let tables = [
        include_str!("../data/bad-requests.txt"),
        include_str!("../data/blackbox/bad-requests.txt"),
    ];
    for case in tables.into_iter().flat_map(cases) {
        suite.case(format!("wire: {}", case.name), move |site| {
            wire(site, &case);
        });
    }
    for size in [0, 1, 5_000, 500_000] {
        suite.case(
            format!("wire: a client that vanishes after {size} bytes"),
            move |site| vanishes(site, size),
        );
    }
}

fn wire(site: &Site, case: &Case) {
    kept(site, |container| {
        let sent = replace(&case.sent, b"/c/", format!("/{container}/").as_bytes());
        let sent = replace(
            &sent,
            b"Host: localhost\r\n",
            format!("Host: localhost\r\n{}", site.token_line()).as_bytes(),
        );
        let statuses = statuses(site.address(), &sent);
        assert_eq!(
            statuses,
            case.statuses,
            "the responses to {:.300}",
            String::from_utf8_lossy(&sent)
        );
    });
}

/// Breaks a connection in the middle of a body.
fn vanishes(site: &Site, bytes: usize) {
    kept(site, |container| {
        for name in ["kept", "evil"] {
            let mut connection = Connection::open(site.address());
            let fields = format!(
                "Host: localhost\r\n{}Content-Length: 1000000\r\n",
                site.token_line()
            );
            connection.send(format!("PUT /{container}/{name} HTTP/1.1\r\n{fields}\r\n"));
            connection.send(vec![b'x'; bytes]);
        }
    });
}

/// Runs a case with an existing blob, which must be unchanged and alone afterwards.
fn kept(site: &Site, case: impl FnOnce(&str)) {
    let (container, mut http) = (site.name(), site.plain());
    let path = format!("/{container}/kept");
    let tag = http.put(&path, &[], KEPT).is(201).etag().to_owned();
    case(&container);
    let mut http = site.plain();
    let read = http.get(&path).is(200);
    assert_eq!((read.etag(), read.text()), (tag.as_str(), KEPT));
    let listing = http.get(&format!("/{container}")).is(200).json();
    assert_eq!(
        listing["blobs"].as_array().map(Vec::len),
        Some(1),
        "{listing}"
    );
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}
