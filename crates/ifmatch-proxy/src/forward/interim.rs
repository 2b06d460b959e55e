//! Interim responses: 102 and 103.

use std::fmt;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, TRAILER};
use http::{HeaderMap, StatusCode};

use crate::forward::headers::remove_connection_fields;
use crate::route::fields::FieldRules;

/// Receives interim responses (RFC 9110 §15.2): 102 Processing and 103 Early Hints. Others apply to a single connection
/// and are dropped.
///
/// ```
/// use ifmatch_proxy::{ForwardedClient, Interim};
///
/// let interim = Interim::new(|status, headers| println!("{status}: {headers:?}"));
/// let client = ForwardedClient { address: ([192, 0, 2, 7], 4711).into(), secure: true, interim: Some(interim) };
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(client);
/// ```
#[derive(Clone)]
pub struct Interim(Arc<dyn Fn(StatusCode, HeaderMap) + Send + Sync>);

impl Interim {
    /// Calls `pass_on` with each interim response, before the final one.
    pub fn new(pass_on: impl Fn(StatusCode, HeaderMap) + Send + Sync + 'static) -> Self {
        Self(Arc::new(pass_on))
    }

    /// Passes an upstream's interim response on, without the fields that the route removes or replaces. The fields that it
    /// sets are for the final response.
    pub(crate) fn send(&self, status: StatusCode, headers: &HeaderMap, rules: &FieldRules) {
        if matches!(status.as_u16(), 102 | 103) {
            let mut headers = headers.clone();
            remove_connection_fields(&mut headers);
            rules.remove_from(&mut headers);
            // An interim response has no content for these fields to describe (RFC 9110 §8.6).
            for name in [CONTENT_LENGTH, TRAILER] {
                headers.remove(name);
            }
            (self.0)(status, headers);
        }
    }
}

impl fmt::Debug for Interim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interim")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::header::{CONNECTION, LINK};
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::route::fields::Messages;

    #[test]
    fn interim_responses_have_no_fields_about_content_or_connection_and_none_that_a_route_removes()
    {
        let told = Arc::new(Mutex::new(Vec::new()));
        let interim = Interim::new({
            let told = Arc::clone(&told);
            move |status, headers| told.lock().unwrap().push((status, headers))
        });
        let link = (LINK, HeaderValue::from_static("</a.css>; rel=preload"));
        let value = HeaderValue::from_static("100");
        let others = [CONTENT_LENGTH, TRAILER, CONNECTION].map(|name| (name, value.clone()));
        let changed =
            ["x-powered-by", "x-site"].map(|name| (HeaderName::from_static(name), value.clone()));
        let headers: HeaderMap = others
            .into_iter()
            .chain(changed)
            .chain([link.clone()])
            .collect();
        let rules = FieldRules::new(Messages::Responses)
            .remove("x-powered-by")
            .and_then(|rules| rules.set("x-site", "shop"));
        let rules = rules
            .and_then(|rules| rules.add("x-hint", "a"))
            .expect("rules");
        interim.send(StatusCode::CONTINUE, &headers, &rules);
        interim.send(StatusCode::EARLY_HINTS, &headers, &rules);
        assert_eq!(
            *told.lock().unwrap(),
            [(StatusCode::EARLY_HINTS, HeaderMap::from_iter([link]))]
        );
    }
}
