//! The body of `$batch`: one changeset of requests, each a part of `multipart/mixed`.

use http::request::Parts;
use http::{HeaderMap, Method, Request, Uri};

use super::content_type;
use crate::error::TableError;

/// Maximum length of a boundary, in bytes. RFC 2046 §5.1.1 requires no more than 70.
const MAX_BOUNDARY: usize = 200;

/// A request in a changeset.
#[derive(Debug)]
pub(crate) struct ChangesetPart {
    pub(crate) head: Parts,
    pub(crate) body: String,
}

/// Parses the body of a batch.
///
/// # Errors
/// The body isn't a changeset.
pub(crate) fn parse(headers: &HeaderMap, body: &str) -> Result<Vec<ChangesetPart>, TableError> {
    let sets = split(body, &boundary(content_type(headers))?)?;
    let [set] = sets[..] else {
        return Err(malformed("a batch must have one changeset, and no queries"));
    };
    let (fields, set) = head(set)?;
    let media = content_type(&fields);
    if !media
        .trim_start()
        .to_ascii_lowercase()
        .starts_with("multipart/mixed")
    {
        return Err(malformed("a batch must have one changeset, and no queries"));
    }
    split(set, &boundary(media)?)?
        .into_iter()
        .map(request)
        .collect()
}

/// Parses a part: its own header, a request line, the header of the request, and its body.
fn request(part: &str) -> Result<ChangesetPart, TableError> {
    let (fields, inner) = head(part)?;
    if !content_type(&fields)
        .trim()
        .eq_ignore_ascii_case("application/http")
    {
        return Err(malformed(
            "a part of a changeset must have the type application/http",
        ));
    }
    let (line, rest) = inner
        .split_once('\n')
        .ok_or_else(|| malformed("a part has no request line"))?;
    let mut words = line.trim_end().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1"), None) =
        (method, target, version, words.next())
    else {
        return Err(malformed("a request line must be: method, URL, HTTP/1.1"));
    };
    let method: Method = method
        .parse()
        .map_err(|_| malformed("a part has an invalid method"))?;
    let uri: Uri = target
        .parse()
        .map_err(|_| malformed("a part has an invalid URL"))?;
    let (headers, body) = head(rest)?;
    let mut request = Request::new(());
    (
        *request.method_mut(),
        *request.uri_mut(),
        *request.headers_mut(),
    ) = (method, uri, headers);
    Ok(ChangesetPart {
        head: request.into_parts().0,
        body: body.trim_end_matches(['\r', '\n']).to_owned(),
    })
}

/// Parses header lines up to an empty one, and returns what follows.
fn head(text: &str) -> Result<(HeaderMap, &str), TableError> {
    let mut headers = HeaderMap::new();
    let mut rest = text;
    loop {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let line = line.strip_suffix('\r').unwrap_or(line);
        rest = after;
        if line.is_empty() {
            return Ok((headers, rest));
        }
        let field = line.split_once(':').and_then(|(name, value)| {
            Some((
                http::HeaderName::from_bytes(name.as_bytes()).ok()?,
                value.trim().parse().ok()?,
            ))
        });
        let (name, value) = field.ok_or_else(|| malformed("a part has an invalid header field"))?;
        headers
            .try_append(name, value)
            .map_err(|_| malformed("a part has too many header fields"))?;
    }
}

/// Returns the parts between lines with the boundary. The last such line must end with two hyphens.
fn split<'a>(text: &'a str, boundary: &str) -> Result<Vec<&'a str>, TableError> {
    let (open, close) = (format!("--{boundary}"), format!("--{boundary}--"));
    let (mut parts, mut begin, mut at) = (Vec::new(), None, 0);
    for line in text.split_inclusive('\n') {
        let content = line.trim_end();
        let is_last = content == close;
        if is_last || content == open {
            parts.extend(begin.map(|begin| &text[begin..at]));
            if is_last {
                return Ok(parts);
            }
            begin = Some(at + line.len());
        }
        at += line.len();
    }
    Err(malformed("a multipart body does not end with its boundary"))
}

/// Returns the boundary in a content type.
fn boundary(media: &str) -> Result<String, TableError> {
    let parameters = media
        .split(';')
        .skip(1)
        .filter_map(|parameter| parameter.trim().split_once('='));
    let mut boundaries = parameters.filter(|(name, _)| name.eq_ignore_ascii_case("boundary"));
    let boundary = boundaries
        .next()
        .map(|(_, value)| value.trim_matches('"').to_owned());
    boundary
        .filter(|boundary| !boundary.is_empty() && boundary.len() <= MAX_BOUNDARY)
        .ok_or_else(|| malformed("the type of a batch must be multipart/mixed with a boundary"))
}

fn malformed(detail: &str) -> TableError {
    TableError::invalid(detail)
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;

    use super::*;

    fn parsed(body: &str) -> Result<Vec<ChangesetPart>, TableError> {
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            "multipart/mixed; boundary=b".parse().expect("valid"),
        );
        parse(&headers, body)
    }

    fn changeset(parts: &str) -> String {
        format!(
            "--b\r\nContent-Type: multipart/mixed; boundary=\"c\"\r\n\r\n{parts}--c--\r\n\r\n--b--\r\n"
        )
    }

    #[test]
    fn parts_are_requests() {
        let part = "--c\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\nPATCH http://h/a/t(PartitionKey='p',RowKey='r') \
                    HTTP/1.1\r\nIf-Match: *\r\nContent-Type: application/json\r\n\r\n{\"a\": \"--c\"}\r\n";
        for body in [
            changeset(&part.repeat(2)),
            changeset(&part.repeat(2)).replace("\r\n", "\n"),
        ] {
            let parts = parsed(&body).expect("a changeset");
            assert_eq!(parts.len(), 2);
            assert_eq!(parts[0].head.method, "PATCH");
            assert_eq!(
                parts[0].head.uri.path(),
                "/a/t(PartitionKey='p',RowKey='r')"
            );
            assert_eq!(parts[0].head.headers["if-match"], "*");
            assert_eq!(parts[1].body, "{\"a\": \"--c\"}");
        }
    }

    #[test]
    fn rejects_other_bodies() {
        let part = "--c\r\nContent-Type: application/http\r\n\r\nGET /a HTTP/1.1\r\n\r\n";
        let whole = changeset(part);
        let fields = (0..24_577).fold("HTTP/1.1".to_owned(), |fields, name| {
            fields + &format!("\r\nh{name}:")
        });
        for body in [
            "",
            "--b--",
            &whole[..whole.len() - 8],
            &whole.replace("--c--", ""),
            &whole.replace("HTTP/1.1", "HTTP/1.1 x"),
            &whole.replace("application/http", "text/plain"),
            &whole.replace("multipart/mixed", "application/http"),
            &whole.replacen("--b\r\n", "--b\r\n\r\n--b\r\n", 1),
            &whole.replace("boundary=", "x="),
            // More fields than a map takes.
            &whole.replace("HTTP/1.1", &fields),
        ] {
            assert!(parsed(body).is_err(), "{body:?}");
        }
        assert!(parsed(&whole).is_ok());
    }
}
