//! A tag as a part of axum's responses: `(tag, Json(note))`.

use std::convert::Infallible;

use axum_core::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use http::header::ETAG;

use super::EntityTag;

/// Sets `ETag`.
impl IntoResponseParts for EntityTag {
    type Error = Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Infallible> {
        response.headers_mut().insert(ETAG, self.into());
        Ok(response)
    }
}

/// An empty response with the tag: `Result<EntityTag, AppError>`, or `(StatusCode::CREATED, tag)`.
impl IntoResponse for EntityTag {
    fn into_response(self) -> Response {
        (self, ()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn a_tag_before_a_body_is_the_etag() {
        let tag = EntityTag::strong("17").unwrap();
        let response = (tag.clone(), "text").into_response();
        assert_eq!(response.headers()[ETAG], tag.to_header());
        let response = (StatusCode::CREATED, tag.clone()).into_response();
        assert_eq!(
            (response.status(), &response.headers()[ETAG]),
            (StatusCode::CREATED, &tag.to_header())
        );
    }
}
