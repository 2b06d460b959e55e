//! Blob Batch: deletions and changes of tier, each a request of its own with its own signature, conditions and lease.

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::{Context, Peer};
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::Upload;

use crate::auth;
use crate::body;
use crate::error::AzureError;
use crate::policies;
use crate::random_guid;
use crate::request::headers::VERSION;
use crate::request::{self, BatchParameters, BlobOperation, RestOperation, permissions};
use crate::response::{self, RequestIds};

/// Maximum number of parts.
const MAX_PARTS: usize = 256;
/// Maximum number of lines of a part, most of them header fields. A list of lines takes more memory than short lines.
const MAX_LINES: usize = 1_000;
/// Maximum number of parts carried out concurrently.
const PARALLEL: usize = 8;

/// Carries out the parts. A part that fails doesn't affect the others; a malformed batch has no effect.
pub(crate) async fn run(
    context: &Context,
    accounts: &Accounts,
    account: &Account,
    head: &Parts,
    batch: BatchParameters,
    body: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let BatchParameters {
        container,
        boundary,
        document,
    } = batch;
    let bytes = body::read(context, document, body).await?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| AzureError::invalid_batch("a batch must be UTF-8"))?;
    let parts = parse(text, &boundary)?;
    let version = head.headers.get(VERSION);
    let peer = head.extensions.get::<Peer>();
    let answers = stream::iter(parts).map(|BatchPart { id, mut head }| {
        if let Some(peer) = peer {
            head.extensions.insert(*peer);
        }
        let container = container.as_ref();
        async move {
            let answer =
                match execute(context, accounts, account, container, version, &mut head).await {
                    Ok(answer) => answer,
                    Err(error) => response::error(error, &head.method),
                };
            (id, RequestIds::of(&head).add_to(answer))
        }
    });
    // Boxed: the compiler can't show that a stream of these futures can be sent between threads.
    let mut answers = answers.buffered(PARALLEL).boxed();
    let name = random_guid().ok_or_else(AzureError::busy)?;
    let boundary = format!("batchresponse_{name}");
    let mut whole = BytesMut::new();
    while let Some((id, answer)) = answers.next().await {
        write(&mut whole, &boundary, &id, answer).await?;
    }
    // No line break: the SDK for C++ ends the process if anything follows.
    whole.put_slice(format!("--{boundary}--").as_bytes());
    let mut response = Response::new(BlobBody::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    let media_type = HeaderValue::try_from(format!("multipart/mixed; boundary={boundary}"));
    response
        .headers_mut()
        .extend(media_type.ok().map(|media_type| (CONTENT_TYPE, media_type)));
    response
        .headers_mut()
        .insert(CONTENT_LENGTH, whole.len().into());
    *response.body_mut() = BlobBody::from(whole.freeze()).in_place_of(bytes);
    Ok(response)
}

/// Authenticates, parses and executes a part.
async fn execute(
    context: &Context,
    accounts: &Accounts,
    account: &Account,
    container: Option<&ContainerName>,
    version: Option<&HeaderValue>,
    head: &mut Parts,
) -> Result<Response<BlobBody>, AzureError> {
    let sent = head.clone();
    head.uri = with_account(&head.uri, account)?;
    let policies = policies::named(context, accounts, head).await?;
    let policy = policies.of_request.as_ref();
    let grant = auth::authenticate_part(accounts, account, &sent, head, context.wall(), policy)?;
    if let Some(version) = version {
        let inserted = head.headers.try_insert(VERSION, version.clone());
        inserted.map_err(|_| AzureError::invalid_batch("a part has too many header fields"))?;
    }
    let mut operation =
        request::parse(context, head, account, accounts, &grant, policies.of_source)?;
    permissions::check(&mut operation, &grant)?;
    match operation {
        RestOperation::Blob(
            blob,
            operation @ (BlobOperation::Delete(..) | BlobOperation::SetTier(..)),
        ) if container.is_none_or(|container| *container == blob.container) => {
            crate::on_blob(
                context,
                &blob,
                operation,
                Upload::new(Full::<Bytes>::default()),
            )
            .await
        }
        _ => Err(AzureError::invalid_batch(
            "a part deletes a blob or sets its tier, in the container of the batch",
        )),
    }
}

/// Returns the path and query with the account's name, which some clients leave out.
fn with_account(uri: &Uri, account: &Account) -> Result<Uri, AzureError> {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    if uri.path().split('/').nth(1) == Some(account.name()) {
        return Ok(uri.clone());
    }
    format!("/{}{target}", account.name())
        .parse()
        .map_err(|_| AzureError::invalid_batch("a part has a malformed target"))
}

/// A request in a batch.
#[derive(Debug)]
struct BatchPart {
    /// Its `Content-ID`, which the response repeats.
    id: String,
    head: Parts,
}

/// Parses a batch.
fn parse(text: &str, boundary: &str) -> Result<Vec<BatchPart>, AzureError> {
    let (open, close) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut lines = text
        .lines()
        .map(str::trim_end)
        .skip_while(|line| *line != open);
    let mut parts = Vec::new();
    lines
        .next()
        .ok_or_else(|| AzureError::invalid_batch("the body has no part"))?;
    loop {
        let mut part = Vec::new();
        let end = loop {
            match lines.next() {
                Some(line) if line == open || line == close => break line,
                Some(_) if part.len() == MAX_LINES => {
                    return Err(AzureError::invalid_batch(format!(
                        "a part has more than {MAX_LINES} lines"
                    )));
                }
                Some(line) => part.push(line),
                None => {
                    return Err(AzureError::invalid_batch(
                        "the body ends before the last boundary",
                    ));
                }
            }
        };
        if parts.len() == MAX_PARTS {
            let message = format!("the batch has more than {MAX_PARTS} parts");
            return Err(AzureError::bad_request(
                "ExceedsMaxBatchRequestCount",
                message,
            ));
        }
        parts.push(BatchPart::parse(&part, parts.len())?);
        if end == close {
            return Ok(parts);
        }
    }
}

impl BatchPart {
    /// Parses the lines of the part with this number.
    fn parse(lines: &[&str], number: usize) -> Result<Self, AzureError> {
        let malformed = |what: &str| AzureError::invalid_batch(format!("part {number}: {what}"));
        let mut lines = lines.iter().copied();
        let mut id = number.to_string();
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| malformed("a header has no colon"))?;
            if name.eq_ignore_ascii_case("content-id") {
                value.trim().clone_into(&mut id);
            }
        }
        let mut line = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1"), None) =
            (line.next(), line.next(), line.next(), line.next())
        else {
            return Err(malformed(
                "must have a request line, such as 'DELETE /container/blob HTTP/1.1'",
            ));
        };
        // The SDK for .NET omits the slash.
        let path = match target.strip_prefix('/') {
            None if target.is_empty() || target.contains("://") => {
                return Err(malformed("the target must be a path"));
            }
            None => format!("/{target}"),
            Some(_) => target.to_owned(),
        };
        let mut request = Request::builder().method(method).uri(path);
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| malformed("a header has no colon"))?;
            request = request.header(name, value.trim());
        }
        if lines.any(|line| !line.is_empty()) {
            return Err(malformed("a part of a batch has no body"));
        }
        let (head, ()) = request
            .body(())
            .map_err(|error| malformed(&error.to_string()))?
            .into_parts();
        Ok(Self { id, head })
    }
}

/// Appends the response to a part.
async fn write(
    whole: &mut BytesMut,
    boundary: &str,
    id: &str,
    answer: Response<BlobBody>,
) -> Result<(), AzureError> {
    let (head, body) = answer.into_parts();
    let body = body
        .collect()
        .await
        .map_err(AzureError::of_blob)?
        .to_bytes();
    let reason = head.status.canonical_reason().unwrap_or_default();
    let begin =
        format!("--{boundary}\r\nContent-Type: application/http\r\nContent-ID: {id}\r\n\r\n");
    whole.put_slice(format!("{begin}HTTP/1.1 {} {reason}\r\n", head.status.as_str()).as_bytes());
    for (name, value) in &head.headers {
        for bytes in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            whole.put_slice(bytes);
        }
    }
    whole.put_slice(b"\r\n");
    whole.put_slice(&body);
    whole.put_slice(b"\r\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> &'static str {
        parse(text, "b").map_or_else(|error| error.code, |_| "")
    }

    #[test]
    fn a_malformed_batch_is_refused() {
        let part = "--b\r\nContent-ID: 7\r\n\r\nDELETE /c/a?x=1 HTTP/1.1\r\nx-ms-date: now\r\n\r\n";
        let parsed = parse(&format!("{part}{part}--b--\r\n"), "b").expect("two parts");
        assert_eq!(parsed.len(), 2);
        assert_eq!(
            (parsed[0].id.as_str(), parsed[0].head.uri.path()),
            ("7", "/c/a")
        );
        assert_eq!(parsed[1].head.headers["x-ms-date"], "now");
        let bare = parse(&format!("{}--b--", part.replace("/c/a", "c/a")), "b")
            .expect("one part, as the SDK for .NET writes it");
        assert_eq!(bare[0].head.uri.path(), "/c/a");
        let many = format!("{}--b--", part.repeat(257));
        assert_eq!(code(&many), "ExceedsMaxBatchRequestCount");
        let long = format!("--b\r\n{}--b--", "\r\n".repeat(MAX_LINES + 1));
        assert!(
            parse(&long, "b")
                .unwrap_err()
                .message
                .contains("1000 lines")
        );
        let body = format!("{part}changed\r\n--b--");
        let absolute = part.replace("/c/a", "http://localhost/c/a");
        for text in [
            "",
            "--b--",
            "--b\r\n--b--",
            part,
            &body,
            &format!("{absolute}--b--"),
            "--b\r\n\r\nDELETE /a\r\n--b--",
        ] {
            assert_eq!(code(text), "InvalidInput", "{text}");
        }
    }
}
