//! Error messages for configuration files. They show no secrets, since they may be logged.

use toml::de::Error;

/// Keys with secret values. Header fields of requests to upstreams may have credentials.
const SECRETS: [&str; 10] = [
    "read-token",
    "write-token",
    "accounts",
    "key",
    "key2",
    "request-headers",
    "set",
    "add",
    "authorization",
    "cookie",
];
/// The header of a route's table. Errors of the whole route are at this line.
const ROUTE: &str = "[[proxy.route]]";

/// Describes an error and its position. Shows the line if its key is not secret.
pub(crate) fn describe(text: &str, error: &Error) -> String {
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return error.message().to_owned();
    };
    let is_unknown = error.message().starts_with("unknown field");
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    if is_public(line) && !is_unknown {
        return error.to_string().trim_end().to_owned();
    }
    let number = before.matches('\n').count() + 1;
    let column = before[start..].chars().count() + 1;
    let what = match error.message().rsplit_once(", expected ") {
        _ if is_unknown => error.message().to_owned(),
        Some((_, expected)) => format!("expected {expected} (the line is not shown because it may contain a secret)"),
        None => "syntax error (the line is not shown because it may contain a secret)".to_owned(),
    };
    format!("TOML parse error at line {number}, column {column}\n{what}")
}

/// Returns `true` if a line starts with a key that is not secret, or a route.
fn is_public(line: &str) -> bool {
    if line.trim() == ROUTE {
        return true;
    }
    let Some((key, _)) = line.split_once('=') else { return false };
    let key = key.trim();
    let is_bare = key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    is_bare && !SECRETS.contains(&key)
}

#[cfg(test)]
mod tests {
    use crate::config::settings::Settings;

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
            ("[[accounts]]\nname = 'a'\nkey = ['hunter2']", "line 3, column 7"),
            ("[[accounts]]\nname = 'a'\nkey3 = 'hunter2'", "line 3, column 1"),
            ("write-tokens = ['hunter2']", "line 1, column 1"),
            ("[[proxy.route]]\nrequest-headers = { set = { Authorization = 'hunter2 } }", "line 2"),
            ("[[proxy.route]]\nrequest-headers.set.Authorization = 'hunter2", "line 2"),
            ("[proxy.route.request-headers.set]\nauthorization = 'hunter2", "line 2"),
            (
                "[[proxy.route]]\nmatch = 'a'\nupstream = ['http://a']\nrequest-headers.set.A = \"hunter2\\u0000\"",
                "line 1",
            ),
            ("\"write-token\" = 'hunter2'", "line 1"),
        ] {
            let error = error(text);
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains(at), "{error}");
        }
        assert!(error("write-token = 'hunter2'").contains("expected a sequence"));
        assert!(error("write-tokens = ['hunter2']").contains("`write-token`"));
    }

    #[test]
    fn other_lines_are_shown() {
        let error = error("data = 'here'\nthreads = 'many'");
        assert!(error.contains("2 | threads = 'many'") && error.contains("invalid type"), "{error}");
    }
}
