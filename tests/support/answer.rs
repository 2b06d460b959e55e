//! A response read to its end, as both clients return it.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;

/// A response with its complete body.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// All field lines.
    pub headers: HeaderMap,
    /// The content, without its framing.
    pub body: Bytes,
    /// Trailers.
    pub trailers: HeaderMap,
}

impl Answer {
    /// Reads a response to its end.
    ///
    /// # Errors
    /// Fails if the body does.
    pub async fn read<B: BodyExt>(response: Response<B>) -> Result<Self, B::Error> {
        let (head, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        Ok(Self {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
            trailers,
        })
    }

    /// Returns the value of a header, which must occur once.
    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        let mut values = self.headers.get_all(name).iter();
        let Some(value) = values.next() else {
            panic!("no `{name}` in {self:#?}")
        };
        assert!(
            values.next().is_none(),
            "`{name}` more than once in {self:#?}"
        );
        value
            .to_str()
            .unwrap_or_else(|_| panic!("`{name}` is not text in {self:#?}"))
    }

    /// Returns the entity tag, which must be present.
    #[track_caller]
    pub fn etag(&self) -> &str {
        self.header("etag")
    }

    /// The content as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|_| panic!("not UTF-8: {self:#?}"))
    }

    /// The content as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:#?}"))
    }

    /// Returns the response if it has this status.
    #[track_caller]
    #[allow(
        clippy::return_self_not_must_use,
        reason = "most callers only want the check"
    )]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:#?}");
        self
    }
}
