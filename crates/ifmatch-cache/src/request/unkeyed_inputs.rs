//! Unkeyed inputs: fields that many origins use without naming them in `Vary`. Requests with such fields get separate
//! responses, so they can't poison the cache.

use std::borrow::Cow;

use http::HeaderValue;
use http::header::FORWARDED;

use crate::policy::fields::split;

/// Returns `true` if the field overrides the host, scheme, path or method of the request at many origins.
///
/// Excludes fields that identify the client: behind a proxy, each client would get a separate cache.
pub(crate) fn is_unkeyed_input(name: &str) -> bool {
    // The first letters of the names below: most fields have another.
    if !name.starts_with(['x', 'f', 'b', 's', 'p']) {
        return false;
    }
    // CGI treats `a_b` and `a-b` as the same name.
    let name = if name.contains('_') {
        Cow::Owned(name.replace('_', "-"))
    } else {
        Cow::Borrowed(name)
    };
    let begins = |prefix: &&str| name.starts_with(*prefix);
    NAMES.contains(&&*name) || PREFIXES.iter().any(begins) && !CLIENTS.iter().any(begins)
}

/// Whole names.
const NAMES: [&str; 16] = [
    "base-url",
    "forwarded",
    "front-end-https",
    "path-info",
    "script-name",
    "x-backend-host",
    "x-forwarded",
    "x-host",
    "x-matched-path",
    "x-method-override",
    "x-ms-original-url",
    "x-nextjs-data",
    "x-scheme",
    "x-script-name",
    "x-url-scheme",
    "x-wp-base-url",
];

/// Beginnings of names.
const PREFIXES: [&str; 9] = [
    "x-envoy-original-",
    "x-forward-",
    "x-forwarded-",
    "x-http-",
    "x-invoke-",
    "x-middleware-",
    "x-original-",
    "x-proxy-",
    "x-rewrite-",
];

/// Exceptions among them that identify the client.
const CLIENTS: [&str; 2] = ["x-forwarded-for", "x-original-for"];

/// Appends a line of such a field to the implicit key.
pub(crate) fn write(name: &str, line: &HeaderValue, text: &mut String) {
    let mut add = |value: &[u8]| {
        text.push_str(name);
        text.push(':');
        text.extend(value.iter().copied().map(char::from));
        text.push('\n');
    };
    if name == FORWARDED {
        let pairs = split(line.as_bytes()).flat_map(|element| element.split(|byte| *byte == b';'));
        pairs
            .map(<[u8]>::trim_ascii)
            .filter(|pair| !is_of_client(pair))
            .for_each(add);
    } else {
        add(line.as_bytes());
    }
}

/// Returns `true` if a pair of `Forwarded` (RFC 7239 §4) only identifies a client or proxy. Ambiguous pairs don't
/// count.
fn is_of_client(pair: &[u8]) -> bool {
    let Some(at) = pair.iter().position(|byte| *byte == b'=') else {
        return pair.is_empty();
    };
    let (name, value) = (&pair[..at], &pair[at + 1..]);
    let value = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value);
    let node = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':' | b'_' | b'-' | b'[' | b']')
    };
    (name.eq_ignore_ascii_case(b"for") || name.eq_ignore_ascii_case(b"by"))
        && value.iter().all(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_of_the_target_count_and_client_addresses_do_not() {
        for name in [
            "forwarded",
            "x-forwarded-host",
            "x_forwarded_host",
            "x-forwarded-prefix",
            "x-original-url",
            "script_name",
            "x-envoy-original-path",
            "x-ms-original-url",
            "x-invoke-path",
            "x-matched-path",
            "x-nextjs-data",
            "x-middleware-subrequest",
            "x-backend-host",
        ] {
            assert!(is_unkeyed_input(name), "{name}");
        }
        for name in [
            "x-forwarded-for",
            "x_forwarded_for",
            "x-real-ip",
            "x-request-id",
            "accept",
            "from",
            "x-forwards",
        ] {
            assert!(!is_unkeyed_input(name), "{name}");
        }
    }

    fn written(line: &'static str) -> String {
        let mut text = String::new();
        write("forwarded", &HeaderValue::from_static(line), &mut text);
        text
    }

    #[test]
    fn only_host_and_protocol_of_forwarded_count() {
        assert_eq!(
            written("for=192.0.2.1;host=a;proto=https"),
            "forwarded:host=a\nforwarded:proto=https\n"
        );
        assert_eq!(
            written("for=\"[2001:db8::1]:80\" ; by=_x;host=a, For=b"),
            "forwarded:host=a\n"
        );
        assert_eq!(written("for=a;by=b"), "");
    }

    #[test]
    fn client_addresses_cannot_hide_other_inputs() {
        for (line, hidden) in [
            ("for=\"x;host=evil\"", "host=evil"),
            ("for=\"a,host=evil\"", "host=evil"),
            ("for=\"a,host=evil", "host=evil"),
            ("for=a host=evil", "host=evil"),
            ("for=a=host=evil", "host=evil"),
            ("evil", "evil"),
        ] {
            assert!(written(line).contains(hidden), "{line}: {}", written(line));
        }
    }
}
