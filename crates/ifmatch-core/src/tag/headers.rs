//! A tag as a typed header: `ETag`.

use headers::{Error, Header};
use http::header::ETAG;
use http::{HeaderName, HeaderValue};

use super::EntityTag;

/// The `ETag` of a response. A field that occurs twice, or is malformed, is an error.
impl Header for EntityTag {
    fn name() -> &'static HeaderName {
        &ETAG
    }

    fn decode<'i, I: Iterator<Item = &'i HeaderValue>>(values: &mut I) -> Result<Self, Error> {
        match (values.next(), values.next()) {
            (Some(value), None) => Self::from_header(value).map_err(|_| Error::invalid()),
            _ => Err(Error::invalid()),
        }
    }

    fn encode<E: Extend<HeaderValue>>(&self, values: &mut E) {
        values.extend([self.to_header()]);
    }
}

#[cfg(test)]
mod tests {
    use headers::HeaderMapExt;
    use http::HeaderMap;

    use super::*;

    #[test]
    fn a_typed_tag_is_read_as_it_was_written() {
        let mut fields = HeaderMap::new();
        let tag = EntityTag::weak("17").unwrap();
        fields.typed_insert(tag.clone());
        assert_eq!(fields.typed_get::<EntityTag>(), Some(tag));
        fields.append(ETAG, HeaderValue::from_static("\"18\""));
        assert!(fields.typed_try_get::<EntityTag>().is_err());
        fields.insert(ETAG, HeaderValue::from_static("unquoted"));
        assert!(fields.typed_try_get::<EntityTag>().is_err());
    }
}
