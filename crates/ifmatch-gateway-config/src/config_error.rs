//! Error messages for configuration files. They show no secrets, since they may be logged.

use toml::de::Error;

use super::arguments::keys;
use super::proxy_settings::ProxySettings;
use super::settings::Settings;
use super::shown_url::without_secrets;

/// Keys with secret values. Header fields of requests to upstreams may have credentials.
pub(super) const SECRETS: [&str; 11] = [
    "read-token",
    "write-token",
    "accounts",
    "key",
    "key2",
    "request-headers",
    "response-headers",
    "set",
    "add",
    "authorization",
    "cookie",
];
/// The header of a route's table. Errors of the whole route are at this line.
const ROUTE: &str = "[[proxy.route]]";

/// Describes an error and its position. Shows the line if its key isn't secret.
pub(crate) fn describe(text: &str, error: &Error) -> String {
    without_types(with_position(text, error))
}

/// Replaces the names of number types at the end of a message, which mean nothing to an operator.
fn without_types(message: String) -> String {
    const EXPECTED: &str = "expected ";
    let Some((before, expected)) = message.rsplit_once(EXPECTED) else {
        return message;
    };
    let end = expected
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(expected.len());
    match &expected[..end] {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => {
            format!("{before}{EXPECTED}a whole number{}", &expected[end..])
        }
        "f32" | "f64" => format!("{before}{EXPECTED}a number{}", &expected[end..]),
        _ => message,
    }
}

/// Returns a message with its line, and the column if the error has one.
fn with_position(text: &str, error: &Error) -> String {
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return error.message().to_owned();
    };
    let is_unknown = error.message().starts_with("unknown field");
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    if line.trim() == ROUTE
        && let Some(offset) = line_in_route(&text[start..], error.message())
    {
        let number = before.matches('\n').count() + 1 + offset;
        return format!("TOML parse error at line {number}\n{}", error.message());
    }
    if is_public(line) && !is_unknown {
        return error.to_string().trim_end().to_owned();
    }
    let number = before.matches('\n').count() + 1;
    let column = before[start..].chars().count() + 1;
    let what = match error.message().rsplit_once(", expected ") {
        _ if is_unknown => suggestion(error.message()),
        Some((_, expected)) => {
            format!("expected {expected} (the line may contain a secret, so it isn't shown)")
        }
        None => "syntax error (the line may contain a secret, so it isn't shown)".to_owned(),
    };
    format!("TOML parse error at line {number}, column {column}\n{what}")
}

/// Returns the line of a route's table that an error of the whole table is about, counted from its header's: the first one with
/// what the message quotes, or else the one that sets the key that it begins with. The line itself may have a secret.
fn line_in_route(table: &str, message: &str) -> Option<usize> {
    // The table ends at the header of another one. Those of its own tables begin with its name.
    let is_other = |line: &str| line.starts_with('[') && !line.starts_with("[proxy.route.");
    let lines = || {
        table
            .lines()
            .map(str::trim)
            .enumerate()
            .skip(1)
            .take_while(|(_, line)| !is_other(line))
    };
    let quoted = message
        .split('\'')
        .skip(1)
        .step_by(2)
        .find(|quoted| !quoted.is_empty());
    let is_word =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    // As whole words: 'up' isn't in `upstream`.
    let contains = |line: &str, text: &str| {
        line.match_indices(text).any(|(at, _)| {
            let (before, after) = (&line.as_bytes()[..at], &line.as_bytes()[at + text.len()..]);
            !is_word(before.last()) && !is_word(after.first())
        })
    };
    let has_quoted = |line: &str| quoted.is_some_and(|quoted| contains(line, quoted));
    let key = message.split([' ', ':']).next().unwrap_or_default();
    let names_key = |line: &str| contains(line, key);
    let find = |is: &dyn Fn(&str) -> bool| lines().find(|(_, line)| is(line)).map(|(at, _)| at);
    find(&has_quoted).or_else(|| find(&names_key))
}

/// Smallest similarity of two names for a suggestion: one wrong or two swapped letters of eight.
const SIMILAR: f64 = 0.8;
/// Number of known keys from which an error doesn't list them. The keys of a route are fewer.
const MANY: usize = 20;

/// Returns the message about an unknown key with a suggestion in place of the long list of known ones, if there is one.
fn suggestion(message: &str) -> String {
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let [unknown, expected @ ..] = &names[..] else {
        return message.to_owned();
    };
    let is_top = expected.contains(&"proxy");
    let elsewhere = if is_top {
        keys::<ProxySettings>()
    } else {
        keys::<Settings>()
    };
    let place = if is_top {
        "move it below [proxy]"
    } else {
        "move it above all tables"
    };
    if elsewhere.iter().any(|name| name == unknown) {
        return format!("unknown setting `{unknown}` in this table: {place}");
    }
    let similarity = |name: &str| strsim::normalized_damerau_levenshtein(unknown, name);
    let nearest = expected
        .iter()
        .max_by(|one, other| similarity(one).total_cmp(&similarity(other)));
    match nearest.filter(|name| similarity(name) >= SIMILAR) {
        Some(name) => format!("unknown setting `{unknown}`. Did you mean `{name}`?"),
        None if expected.len() < MANY => message.to_owned(),
        None => {
            format!(
                "unknown setting `{unknown}`. `ifmatch help serve` and `ifmatch help proxy` list all settings."
            )
        }
    }
}

/// Returns `true` if a line starts with a key that isn't secret and has no URL with credentials, or is a route's.
fn is_public(line: &str) -> bool {
    if line.trim() == ROUTE {
        return true;
    }
    let Some((key, value)) = line.split_once('=') else {
        return false;
    };
    if without_secrets(value) != value {
        return false;
    }
    let is_bare = |key: &str| {
        key.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    key.trim()
        .split('.')
        .all(|part| is_bare(part) && !SECRETS.contains(&part))
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;

    fn error(text: &str) -> String {
        Settings::from_toml(text).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn secrets_are_not_shown() {
        for (text, at) in [
            ("write-token = 'hunter2'", "line 1, column 15"),
            ("\nread-token = ['hunter2", "line 2"),
            ("read-token = [\n  'hunter2\n]", "line 2"),
            ("read-token = [\n  hunter2,\n]", "line 2"),
            ("accounts = [{ name = 'a', key = ['hunter2'] }]", "line 1"),
            (
                "[[accounts]]\nname = 'a'\nkey = ['hunter2']",
                "line 3, column 7",
            ),
            (
                "[[accounts]]\nname = 'a'\nkey3 = 'hunter2'",
                "line 3, column 1",
            ),
            ("write-tokens = ['hunter2']", "line 1, column 1"),
            (
                "[[proxy.route]]\nrequest-headers = { set = { Authorization = 'hunter2 } }",
                "line 2",
            ),
            (
                "[[proxy.route]]\nrequest-headers.set.Authorization = 'hunter2",
                "line 2",
            ),
            (
                "[proxy.route.request-headers.set]\nauthorization = 'hunter2",
                "line 2",
            ),
            (
                "[[proxy.route]]\nmatch = 'a'\nupstream = ['http://a']\nrequest-headers.set.A = \"hunter2\\u0000\"",
                "line 4",
            ),
            ("\"write-token\" = 'hunter2'", "line 1"),
            ("register = 'postgres://me:hunter2@host/d", "line 1"),
            ("register = ['postgres://me:hunter2@host/d']", "line 1"),
            ("store = ['s3://bucket?key=hunter2']", "line 1"),
            ("[proxy]\nupstream = 'http://me:hunter2@host'", "line 2"),
        ] {
            let error = error(text);
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains(at), "{error}");
        }
        assert!(error("write-token = 'hunter2'").contains("expected a sequence"));
        assert!(error("write-tokens = ['hunter2']").contains("`write-token`"));
    }

    #[test]
    fn no_type_of_rust_is_named() {
        for (text, expected) in [
            ("max-connections = 'many'", "expected a whole number"),
            ("max-connections = -1", "expected a whole number"),
            ("max-connections = 1.5", "expected a whole number"),
            ("public-read = 'yes'", "expected a boolean"),
        ] {
            let error = error(text);
            assert!(
                error.contains(expected) && !error.contains("u32"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn an_unknown_key_gets_a_suggestion() {
        for (text, expected) in [
            (
                "upstream = ['http://a']",
                "unknown setting `upstream` in this table: move it below [proxy]",
            ),
            (
                "[proxy]\nlisten = '0.0.0.0:80'",
                "line 2, column 1\nunknown setting `listen` in this table: move it above all tables",
            ),
            ("max-bodysize = 1", "Did you mean `max-body-size`?"),
            ("[proxy]\nupstreams = ['a']", "Did you mean `upstream`?"),
            (
                "[[proxy.route]]\nmatch = 'a'\nstrip-prefx = true",
                "Did you mean `strip-prefix`?",
            ),
            (
                "[[proxy.route]]\nmatch = 'a'\ncache-dir = 'd'",
                "unknown setting `cache-dir` in this table: move it above all tables",
            ),
            ("colour = 1", "`ifmatch help serve`"),
        ] {
            let error = error(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    /// The last line of each text has the fault.
    #[test]
    fn an_error_of_a_route_has_the_line_of_the_fault() {
        let route = "[proxy]\n[[proxy.route]]\nmatch = '/first'\nupstream = ['http://a']\n[[proxy.route]]\n";
        let good = "match = 'b.example/x'\nupstream = ['http://b']\n";
        for (before, fault) in [
            ("upstream = ['http://b']\n", "match = '*b.example'"),
            ("upstream = ['http://b']\n", "match = '/a/../b'"),
            ("match = 'b.example'\n", "upstream = ['ftp://b']"),
            (
                "match = 'b.example'\nupstream = [\n  'http://b',\n",
                "  'http://b weight=x'",
            ),
            (good, "status = 301"),
            (good, "health-path = 'up'"),
            (good, "answer-timeout = '0s'"),
            (good, "request-headers.hide = ['X']"),
            (good, "request-headers.set.Host = 'b'"),
            (good, "response-headers.hide = ['ETag']"),
            (good, "[proxy.route.response-headers.set]\nAge = '1'"),
            (good, "cache.ttl = '10'"),
            (good, "cache.ttl = { 304 = '1m' }"),
            (
                "match = 'b.example'\nredirect = 'https://c'\n",
                "max-body-size = 1",
            ),
            (
                "match = 'b.example'\n",
                "redirect = 'https://c$request_uri'",
            ),
            (
                "match = 'b.example'\nupstream = ['http://b']\n",
                "strip-prefix = 1",
            ),
        ] {
            let end = if fault.starts_with("  ") { "\n]" } else { "" };
            let text = format!("{route}{before}{fault}{end}\n");
            let line = format!("{route}{before}{fault}").lines().count();
            let after = "[[proxy.route]]\nmatch = '/last'\nupstream = ['http://a']\nstatus = 301\n";
            for text in [text.clone(), text + after] {
                let error = error(&text);
                let expected = [format!("at line {line}\n"), format!("at line {line},")];
                assert!(
                    expected.iter().any(|expected| error.contains(expected)),
                    "{fault}: {error}"
                );
            }
        }
    }

    #[test]
    fn other_lines_are_shown() {
        let error = error("data = 'here'\nmax-waits = 'many'");
        assert!(
            error.contains("2 | max-waits = 'many'") && error.contains("invalid type"),
            "{error}"
        );
    }
}
