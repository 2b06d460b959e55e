//! The collector of traces.

use url::Url;

use crate::error::Error;

/// Path for traces below the URL of a collector.
const PATH: &str = "/v1/traces";

/// Returns the URL to which traces are sent: of `--otlp`, or of OpenTelemetry's variables.
///
/// # Errors
/// Names the flag or the variable without a usable URL, and does not show its value, which may contain a password.
pub(crate) fn endpoint(flag: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Url>, Error> {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    if let Some(base) = flag.filter(|value| !value.is_empty()) {
        return below("--otlp", base).map(Some);
    }
    if let Some(exact) = variable(EXACT) {
        return parse(EXACT, &exact).map(Some);
    }
    variable(BASE).map(|base| below(BASE, &base)).transpose()
}

/// The variable with the URL for traces.
const EXACT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// The variable with the URL of the collector.
const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

fn below(source: &str, base: &str) -> Result<Url, Error> {
    let mut url = parse(source, base)?;
    let path = format!("{}{PATH}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

fn parse(source: &str, text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| {
        Error::usage(format!("{source} is not the URL of a collector: use http://HOST:4318, or https:// with TLS"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(flag: Option<&str>, variables: &[(&str, &str)]) -> Option<String> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        endpoint(flag, variable).unwrap().map(Into::into)
    }

    #[test]
    fn the_flag_precedes_the_variables() {
        let both = [(BASE, "http://base:4318"), (EXACT, "http://exact/spans")];
        assert_eq!(found(Some("http://flag:4318/"), &both).as_deref(), Some("http://flag:4318/v1/traces"));
        assert_eq!(found(None, &both).as_deref(), Some("http://exact/spans"));
        assert_eq!(found(None, &both[..1]).as_deref(), Some("http://base:4318/v1/traces"));
        assert_eq!(found(Some("https://host/otel"), &[]).as_deref(), Some("https://host/otel/v1/traces"));
    }

    #[test]
    fn nothing_is_sent_unless_asked_for() {
        assert_eq!(found(None, &[]), None);
        assert_eq!(found(Some(""), &[(BASE, "")]), None);
        assert_eq!(found(Some("http://flag"), &[("OTEL_SDK_DISABLED", "True")]), None);
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_password() {
        for url in ["localhost:4318", "grpc://me:secret@host", "http://me:secret@:1", "secret"] {
            let error = endpoint(Some(url), |_| None).unwrap_err().to_string();
            assert!(error.starts_with("--otlp") && !error.contains("secret"), "{error}");
        }
    }
}
