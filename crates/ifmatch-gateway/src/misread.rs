//! What is wrong with a configuration file, said without the secrets that stand in it: the message may go to a log.

use toml::de::Error;

/// The keys whose values may be secrets.
const SECRETS: [&str; 5] = ["read-token", "write-token", "accounts", "key", "key2"];

/// Says where the text is wrong, and how. The line is shown where its key is one that anybody may read.
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
        Some((_, expected)) => format!("expected {expected} (the line may hold a secret, so it is not shown)"),
        None => "it cannot be read (the line may hold a secret, so it is not shown)".to_owned(),
    };
    format!("TOML parse error at line {number}, column {column}\n{what}")
}

/// Whether a line begins with a key, and not with one of those that secrets have.
fn is_public(line: &str) -> bool {
    let Some((key, _)) = line.split_once('=') else { return false };
    let key = key.trim();
    let is_bare = key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    is_bare && !SECRETS.contains(&key)
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;

    fn error(text: &str) -> String {
        Settings::from_toml(text).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn no_secret_is_shown() {
        for (text, at) in [
            ("write-token = 'hunter2'", "line 1, column 15"),
            ("\nread-token = ['hunter2", "line 2"),
            ("read-token = [\n  'hunter2\n]", "line 2"),
            ("read-token = [\n  hunter2,\n]", "line 2"),
            ("accounts = [{ name = 'a', key = ['hunter2'] }]", "line 1"),
            ("[[accounts]]\nname = 'a'\nkey = ['hunter2']", "line 3, column 7"),
            ("[[accounts]]\nname = 'a'\nkey3 = 'hunter2'", "line 3, column 1"),
            ("write-tokens = ['hunter2']", "line 1, column 1"),
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
    fn what_anybody_may_read_is_shown() {
        let error = error("data = 'here'\nthreads = 'many'");
        assert!(error.contains("2 | threads = 'many'") && error.contains("invalid type"), "{error}");
    }
}
