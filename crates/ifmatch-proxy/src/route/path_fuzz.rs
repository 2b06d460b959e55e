//! The body of the fuzz target `route_path`, which also runs as an ordinary test: no server leaves the route of a path.

use super::path::{normal, readings};

/// Pieces of paths that servers read differently. Each of the first 40 bytes of an input selects one.
const PIECES: [&str; 24] = [
    "/", "/", ";", "\\", "%2F", "%5C", "%3B", "%25", "%2525", "2F", "5C", "3B", ".", "%2e", "x",
    "admin", "/admin", "%61dmin", "%00", "%3F", "%23", "%", "=", "a",
];
/// The route's path.
const ROUTE: &[u8] = b"/admin";

/// When a server drops the parameters of segments (`;x`).
#[derive(Clone, Copy, Debug)]
enum Drops {
    Never,
    BeforeDecoding,
    BetweenDecoding,
    AfterDecoding,
}

/// A way to read a path.
#[derive(Clone, Copy, Debug)]
struct Server {
    /// Number of times that it decodes escapes, or that servers in a row do.
    decodes: usize,
    drops: Drops,
    backslash_is_slash: bool,
    merges_slashes: bool,
}

/// Checks that all servers read a path as one below the route, or none does, unless the proxy rejects the path.
pub(crate) fn route_path(data: &[u8]) {
    let pieces: String = data
        .iter()
        .take(40)
        .map(|byte| PIECES[usize::from(*byte) % PIECES.len()])
        .collect();
    let path = format!("/{pieces}");
    let Some(normal) = normal(&path) else { return };
    let Some(readings) = readings(&normal) else {
        return;
    };
    let is_below_route = is_below(normal.as_bytes());
    if readings
        .iter()
        .any(|reading| is_below(reading) != is_below_route)
    {
        return;
    }
    for server in servers() {
        let read = server.read(normal.as_bytes());
        let shown = String::from_utf8_lossy(&read);
        assert_eq!(
            is_below(&read),
            is_below_route,
            "{path} is {shown} to {server:?}"
        );
    }
}

fn servers() -> impl Iterator<Item = Server> {
    let drops = [
        Drops::Never,
        Drops::BeforeDecoding,
        Drops::BetweenDecoding,
        Drops::AfterDecoding,
    ];
    (0..4).flat_map(move |decodes| {
        drops.into_iter().flat_map(move |drops| {
            [(false, false), (false, true), (true, false), (true, true)].map(
                |(backslash_is_slash, merges_slashes)| Server {
                    decodes,
                    drops,
                    backslash_is_slash,
                    merges_slashes,
                },
            )
        })
    })
}

impl Server {
    fn read(self, path: &[u8]) -> Vec<u8> {
        let mut path = path.to_vec();
        if matches!(self.drops, Drops::BeforeDecoding) {
            path = without_parameters(&path);
        }
        for _ in 0..self.decodes {
            if matches!(self.drops, Drops::BetweenDecoding) {
                path = without_parameters(&path);
            }
            path = decoded(&path);
        }
        if matches!(self.drops, Drops::AfterDecoding) {
            path = without_parameters(&path);
        }
        if self.backslash_is_slash {
            path.iter_mut()
                .filter(|byte| **byte == b'\\')
                .for_each(|byte| *byte = b'/');
        }
        let mut segments: Vec<&[u8]> = Vec::new();
        for segment in path.split(|byte| *byte == b'/').skip(1) {
            match segment {
                b"." => {}
                b".." => drop(segments.pop()),
                b"" if self.merges_slashes => {}
                segment => segments.push(segment),
            }
        }
        [&b"/"[..], &segments.join(&b'/')].concat()
    }
}

fn without_parameters(path: &[u8]) -> Vec<u8> {
    let segments = path.split(|byte| *byte == b'/');
    let names = segments.map(|segment| {
        segment
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
    });
    names.collect::<Vec<_>>().join(&b'/')
}

fn decoded(path: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (mut plain, mut at) = (Vec::new(), 0);
    while let Some(byte) = path.get(at) {
        let escaped = match path.get(at + 1..at + 3) {
            Some([high, low]) if *byte == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        plain.push(escaped.map_or(*byte, |(high, low)| {
            u8::try_from(high * 16 + low).unwrap_or_default()
        }));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    plain
}

fn is_below(path: &[u8]) -> bool {
    path.strip_prefix(ROUTE)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of numbers, so a failure can be repeated.
    fn inputs() -> impl Iterator<Item = Vec<u8>> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        (0..100_000).map(move |_| {
            let len = usize::from(next()[0] % 9) + 1;
            (0..len).map(|_| next()[3]).collect()
        })
    }

    #[test]
    fn no_server_leaves_the_route_of_a_path() {
        inputs().for_each(|input| route_path(&input));
    }

    #[test]
    fn servers_disagree_about_paths_that_the_proxy_rejects() {
        for (path, drops, decodes) in [
            ("/;%2Fx/admin", Drops::BeforeDecoding, 1),
            ("/;%252Fx/admin", Drops::BeforeDecoding, 2),
            ("/x/%2e%2e/admin", Drops::Never, 1),
            ("/admin%3Bx", Drops::AfterDecoding, 1),
        ] {
            let server = Server {
                decodes,
                drops,
                backslash_is_slash: false,
                merges_slashes: true,
            };
            assert!(is_below(&server.read(path.as_bytes())), "{path}");
            let plain = Server {
                decodes: 0,
                drops: Drops::Never,
                backslash_is_slash: false,
                merges_slashes: false,
            };
            assert!(
                !is_below(&plain.read(path.as_bytes())) || path.contains(".."),
                "{path}"
            );
        }
    }
}
