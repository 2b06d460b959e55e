//! The collector of traces.

use url::Url;

use crate::error::Error;

/// Path for traces below the URL of a collector.
const PATH: &str = "/v1/traces";

/// Returns the URL to which traces are sent, by OpenTelemetry's variables.
///
/// # Errors
/// Names the variable without a usable URL, and does not show its value, which may contain a password.
pub(crate) fn endpoint(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Url>, Error> {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    if let Some(exact) = variable(EXACT) {
        return parse(EXACT, &exact).map(Some);
    }
    let Some(base) = variable(BASE) else { return Ok(None) };
    let mut url = parse(BASE, &base)?;
    let path = format!("{}{PATH}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(Some(url))
}

/// The variable with the URL for traces.
const EXACT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// The variable with the URL of the collector.
const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

fn parse(source: &str, text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| {
        Error::usage(format!("{source} is not the URL of a collector: use http://HOST:4318, or https:// with TLS"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Option<String> {
        endpoint(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into()))
            .unwrap()
            .map(Into::into)
    }

    #[test]
    fn the_variable_for_traces_precedes_that_for_all_signals() {
        let both = [(BASE, "http://base:4318"), (EXACT, "http://exact/spans")];
        assert_eq!(found(&both).as_deref(), Some("http://exact/spans"));
        assert_eq!(found(&both[..1]).as_deref(), Some("http://base:4318/v1/traces"));
        assert_eq!(found(&[(BASE, "https://host/otel/")]).as_deref(), Some("https://host/otel/v1/traces"));
    }

    #[test]
    fn nothing_is_sent_unless_asked_for() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(BASE, "")]), None);
        assert_eq!(found(&[(BASE, "http://base"), ("OTEL_SDK_DISABLED", "True")]), None);
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_password() {
        for url in ["localhost:4318", "grpc://me:secret@host", "http://me:secret@:1", "secret"] {
            let error = endpoint(|name| (name == BASE).then(|| url.to_owned())).unwrap_err().to_string();
            assert!(error.starts_with(BASE) && !error.contains("secret"), "{error}");
        }
    }
}
