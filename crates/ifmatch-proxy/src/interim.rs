//! The way back for interim responses: 102 and 103.

use std::fmt;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, TRAILER};
use http::{HeaderMap, StatusCode};

use crate::hop;

/// How a server is told of interim responses (RFC 9110 §15.2): 102 Processing and 103 Early Hints. Others concern one
/// connection only and end here.
///
/// ```
/// use ifmatch_proxy::{Client, Interim};
///
/// let interim = Interim::new(|status, headers| println!("{status}: {headers:?}"));
/// let client = Client { address: ([192, 0, 2, 7], 4711).into(), secure: true, interim: Some(interim) };
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

    /// Passes on what came from the upstream.
    pub(crate) fn tell(&self, status: StatusCode, headers: &HeaderMap) {
        if matches!(status.as_u16(), 102 | 103) {
            let mut headers = headers.clone();
            hop::remove(&mut headers);
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

    use http::HeaderValue;
    use http::header::{CONNECTION, LINK};

    use super::*;

    #[test]
    fn an_interim_response_tells_of_no_content_and_no_connection() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let interim = Interim::new({
            let told = Arc::clone(&told);
            move |status, headers| told.lock().unwrap().push((status, headers))
        });
        let link = (LINK, HeaderValue::from_static("</a.css>; rel=preload"));
        let value = HeaderValue::from_static("100");
        let others = [CONTENT_LENGTH, TRAILER, CONNECTION].map(|name| (name, value.clone()));
        let headers: HeaderMap = others.into_iter().chain([link.clone()]).collect();
        interim.tell(StatusCode::CONTINUE, &headers);
        interim.tell(StatusCode::EARLY_HINTS, &headers);
        assert_eq!(*told.lock().unwrap(), [(StatusCode::EARLY_HINTS, HeaderMap::from_iter([link]))]);
    }
}
