//! Requests with credentials, which rule out guesses about sharing the response.

use http::HeaderMap;

/// Substrings in names of fields that carry a client's credentials or session.
const PARTS: [&str; 10] = [
    "apikey",
    "auth",
    "cert",
    "cookie",
    "credential",
    "jwt",
    "passw",
    "secret",
    "session",
    "token",
];

/// Whole words in such names, between hyphens or underscores.
const WORDS: [&str; 10] = [
    "account",
    "dpop",
    "email",
    "identity",
    "key",
    "login",
    "principal",
    "sid",
    "signature",
    "user",
];

/// Returns `true` if a request has a field that identifies its client: `Authorization`, `Cookie`, `X-Api-Key`,
/// `X-Auth-Token` and similar names. The response may then be private to this client even if the origin doesn't say
/// so.
///
/// ```
/// use http::{HeaderMap, HeaderName, HeaderValue};
/// use ifmatch_cache::policy::credential::has_credential;
///
/// let with = |name| HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("x"))]);
/// assert!(has_credential(&with("x-api-key")) && has_credential(&with("cookie")));
/// assert!(!has_credential(&with("user-agent")) && !has_credential(&with("sec-fetch-user")));
/// ```
pub fn has_credential(request: &HeaderMap) -> bool {
    request.keys().any(|name| is_credential(name.as_str()))
}

pub(super) fn is_credential(name: &str) -> bool {
    // Set by browsers; no field with this prefix identifies a user.
    if name == "user-agent" || name.starts_with("sec-") {
        return false;
    }
    PARTS.iter().any(|part| name.contains(part))
        || name.split(['-', '_']).any(|word| WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_identify_clients_are_credentials() {
        for name in [
            "authorization",
            "proxy-authorization",
            "cookie",
            "x-api-key",
            "x_api_key",
            "apikey",
            "x-auth-token",
            "x-amz-security-token",
            "private-token",
            "x-session-id",
            "x-user-id",
            "x-forwarded-user",
            "x-forwarded-client-cert",
            "dpop",
            "ocp-apim-subscription-key",
        ] {
            assert!(is_credential(name), "{name}");
        }
    }

    #[test]
    fn common_browser_fields_are_no_credentials() {
        for name in [
            "accept",
            "accept-encoding",
            "accept-language",
            "cache-control",
            "dnt",
            "host",
            "if-none-match",
            "referer",
            "sec-ch-ua",
            "sec-fetch-user",
            "traceparent",
            "upgrade-insecure-requests",
            "user-agent",
            "x-forwarded-for",
            "x-real-ip",
            "x-request-id",
        ] {
            assert!(!is_credential(name), "{name}");
        }
    }
}
