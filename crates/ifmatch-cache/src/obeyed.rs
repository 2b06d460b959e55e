//! Fields that many origins obey without naming them in `Vary`: who sends them gets responses of its own.

use std::borrow::Cow;

use http::HeaderValue;
use http::header::FORWARDED;

use crate::policy::fields::split;

/// Whether origins are known to obey a field, which names another host, scheme, path or method than the request's own.
///
/// Fields that name the client are not among them: each client would have a cache of its own behind a proxy.
pub(crate) fn is_obeyed(name: &str) -> bool {
    if !name.starts_with(['x', 'f', 'b', 's', 'p']) {
        return false;
    }
    // To CGI and its kin, `a_b` is the same as `a-b`.
    let name = if name.contains('_') { Cow::Owned(name.replace('_', "-")) } else { Cow::Borrowed(name) };
    let begins = |prefix: &&str| name.starts_with(*prefix);
    NAMES.contains(&&*name) || PREFIXES.iter().any(begins) && !CLIENTS.iter().any(begins)
}

const NAMES: [&str; 12] = [
    "base-url",
    "forwarded",
    "front-end-https",
    "path-info",
    "script-name",
    "x-forwarded",
    "x-host",
    "x-method-override",
    "x-scheme",
    "x-script-name",
    "x-url-scheme",
    "x-wp-base-url",
];

const PREFIXES: [&str; 6] = ["x-forward-", "x-forwarded-", "x-http-", "x-original-", "x-proxy-", "x-rewrite-"];

/// The ones among these that name the client.
const CLIENTS: [&str; 3] = ["x-forwarded-for", "x-original-for", "x-proxyuser-"];

/// Writes what a line of such a field says.
pub(crate) fn say(name: &str, line: &HeaderValue, text: &mut String) {
    let mut add = |value: &[u8]| {
        text.push_str(name);
        text.push(':');
        text.extend(value.iter().copied().map(char::from));
        text.push('\n');
    };
    if name == FORWARDED {
        let pairs = split(line.as_bytes()).flat_map(|element| element.split(|byte| *byte == b';'));
        pairs.map(<[u8]>::trim_ascii).filter(|pair| !is_of_client(pair)).for_each(add);
    } else {
        add(line.as_bytes());
    }
}

/// Whether a pair of `Forwarded` (RFC 7239 §4) says nothing but which client or proxy it was. What could be read in
/// another way does not count as such.
fn is_of_client(pair: &[u8]) -> bool {
    let Some(at) = pair.iter().position(|byte| *byte == b'=') else { return pair.is_empty() };
    let (name, value) = (&pair[..at], &pair[at + 1..]);
    let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    let node = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':' | b'_' | b'-' | b'[' | b']');
    (name.eq_ignore_ascii_case(b"for") || name.eq_ignore_ascii_case(b"by")) && value.iter().all(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_another_target_is_obeyed_and_what_names_the_client_is_not() {
        for name in
            ["forwarded", "x-forwarded-host", "x_forwarded_host", "x-forwarded-prefix", "x-original-url", "script_name"]
        {
            assert!(is_obeyed(name), "{name}");
        }
        for name in ["x-forwarded-for", "x_forwarded_for", "x-real-ip", "x-request-id", "accept", "from", "x-forwards"]
        {
            assert!(!is_obeyed(name), "{name}");
        }
    }

    fn said(line: &'static str) -> String {
        let mut text = String::new();
        say("forwarded", &HeaderValue::from_static(line), &mut text);
        text
    }

    #[test]
    fn of_forwarded_the_host_and_the_protocol_count() {
        assert_eq!(said("for=192.0.2.1;host=a;proto=https"), "forwarded:host=a\nforwarded:proto=https\n");
        assert_eq!(said("for=\"[2001:db8::1]:80\" ; by=_x;host=a, For=b"), "forwarded:host=a\n");
        assert_eq!(said("for=a;by=b"), "");
    }

    #[test]
    fn nothing_hides_behind_the_client_s_address() {
        for (line, hidden) in [
            ("for=\"x;host=evil\"", "host=evil"),
            ("for=\"a,host=evil\"", "host=evil"),
            ("for=\"a,host=evil", "host=evil"),
            ("for=a host=evil", "host=evil"),
            ("for=a=host=evil", "host=evil"),
            ("evil", "evil"),
        ] {
            assert!(said(line).contains(hidden), "{line}: {}", said(line));
        }
    }
}
