//! Requests to S3 with Signature Version 4, by hand, so tests can introduce errors.

use std::net::SocketAddr;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::future::join_all;
use hmac::{Hmac, KeyInit, Mac};
use http::{Method, Request};
use sha2::{Digest, Sha256};

use crate::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use crate::{Answer, Client, full};

/// Signs requests for an account.
#[derive(Clone)]
pub struct Signer {
    host: String,
    access_key: String,
    secret_key: String,
}

/// A client that signs its requests to one account.
#[derive(Clone)]
pub struct S3 {
    client: Client,
    signer: Signer,
}

impl S3 {
    /// A client of the development account.
    pub fn development(address: SocketAddr) -> Self {
        Self::new(address, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)
    }

    /// Creates a client with this access key id and secret key.
    pub fn new(address: SocketAddr, access_key: &str, secret_key: &str) -> Self {
        Self {
            client: Client::new(address),
            signer: Signer::new(&address.to_string(), access_key, secret_key),
        }
    }

    /// The same client, which names another host.
    #[must_use]
    pub fn at_host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.signer.host);
        self
    }

    /// Returns the signer, for requests with errors.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Sends a request. The path is percent-encoded, and the parameters of its query are in the order of their names.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> Answer {
        let request = self.signer.signed(method, path, headers, content, now());
        self.client.send(request.map(full)).await
    }

    /// Sends a request as it is.
    pub async fn send_signed(&self, request: Request<Bytes>) -> Answer {
        self.client.send(request.map(full)).await
    }

    /// GET.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::GET, path, headers, "").await
    }

    /// PUT.
    pub async fn put(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> Answer {
        self.send(Method::PUT, path, headers, content).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::DELETE, path, headers, "").await
    }
}

impl Signer {
    /// Creates a signer for a host, with this access key id and secret key.
    pub fn new(host: &str, access_key: &str, secret_key: &str) -> Self {
        Self {
            host: host.to_owned(),
            access_key: access_key.to_owned(),
            secret_key: secret_key.to_owned(),
        }
    }

    /// Returns a request signed at this time. Its signature covers the host and the headers that begin with `x-amz-`, and a `date`,
    /// which takes the place of `x-amz-date`.
    pub fn signed(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
        time: SystemTime,
    ) -> Request<Bytes> {
        let (content, time) = (content.into(), amz_date(time));
        let hash = hex(&Sha256::digest(&content));
        let given = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut headers: Vec<(String, String)> = given.collect();
        headers.push(("host".into(), self.host.clone()));
        if !headers.iter().any(|(name, _)| name == "date") {
            headers.push(("x-amz-date".into(), time.clone()));
        }
        if !headers
            .iter()
            .any(|(name, _)| name == "x-amz-content-sha256")
        {
            headers.push(("x-amz-content-sha256".into(), hash));
        }
        headers.sort();
        let body = headers
            .iter()
            .find(|(name, _)| name == "x-amz-content-sha256")
            .map(|(_, value)| value.clone());
        let is_signed = |name: &str| name == "host" || name == "date" || name.starts_with("x-amz-");
        let signed: Vec<_> = headers.iter().filter(|(name, _)| is_signed(name)).collect();
        let names = signed
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
            .join(";");
        let lines = signed.iter().fold(String::new(), |lines, (name, value)| {
            lines + name + ":" + value + "\n"
        });
        let canonical = canonical(&method, path, &lines, &names, &body.expect("it was added"));
        let scope = format!("{}/us-east-1/s3/aws4_request", &time[..8]);
        let signature = self.signature(&time, &scope, &canonical);
        let credential = format!("{}/{scope}", self.access_key);
        let text = format!(
            "AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
        );
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", text);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        request.body(content).expect("valid names and values")
    }

    /// Returns a presigned URL without its host, for `expires` seconds. Its signature covers the host.
    pub fn presigned(&self, method: &Method, path: &str, time: SystemTime, expires: u64) -> String {
        let time = amz_date(time);
        let scope = format!("{}/us-east-1/s3/aws4_request", &time[..8]);
        let credential = format!("{}/{scope}", self.access_key).replace('/', "%2F");
        let path = format!(
            "{path}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={time}&X-Amz-Expires={expires}\
             &X-Amz-SignedHeaders=host"
        );
        let canonical = canonical(
            method,
            &path,
            &format!("host:{}\n", self.host),
            "host",
            "UNSIGNED-PAYLOAD",
        );
        format!(
            "{path}&X-Amz-Signature={}",
            self.signature(&time, &scope, &canonical)
        )
    }

    fn signature(&self, time: &str, scope: &str, canonical: &str) -> String {
        let hash = hex(&Sha256::digest(canonical));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
        let first = format!("AWS4{}", self.secret_key).into_bytes();
        let key = scope.split('/').fold(first, |key, part| mac(&key, part));
        hex(&mac(&key, &text))
    }
}

/// Returns the text of an element of XML.
#[track_caller]
pub fn element<'a>(text: &'a str, name: &str) -> &'a str {
    let start = format!("<{name}>");
    let (_, rest) = text
        .split_once(&start)
        .unwrap_or_else(|| panic!("no {name}: {text}"));
    rest.split("</").next().expect("a first part")
}

/// Returns a list of parts: their numbers and tags.
pub fn list(parts: &[(u32, &str)]) -> String {
    let part = |(number, tag): &(u32, &str)| {
        format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>",
            tag.replace('"', "&quot;")
        )
    };
    let parts: String = parts.iter().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

/// Checks that one of the writers won, and that the others failed with one of these. Returns the winner.
#[track_caller]
pub fn assert_one(statuses: &[u16], lost: &[u16]) -> usize {
    let won: Vec<_> = (0..statuses.len())
        .filter(|writer| (200..300).contains(&statuses[*writer]))
        .collect();
    let others = statuses
        .iter()
        .filter(|status| lost.contains(status))
        .count();
    assert_eq!((won.len(), others), (1, statuses.len() - 1), "{statuses:?}");
    won[0]
}

/// Lets 16 writers create an object in a bucket, by `PutObject` and `CompleteMultipartUpload`, and then 16 replace or delete it, by
/// `CopyObject` and `DeleteObject` as well. Each goes through one of the doors, and one of 16 must win each time. `IFMATCH_S3_TRIES`
/// replaces the number of tries.
pub async fn race(doors: &[S3], bucket: &str, tries: usize) {
    const WRITERS: usize = 16;
    let tries = std::env::var("IFMATCH_S3_TRIES")
        .ok()
        .map_or(tries, |tries| tries.parse().expect("a number of tries"));
    let door = |writer: usize| &doors[writer % doors.len()];
    let source = format!("{bucket}/source");
    doors[0].put(&source, &[], "source").await.expect(200);
    for attempt in 0..tries {
        let key = format!("{bucket}/race-{attempt}");
        let begin = async |upload: usize| {
            let begun = door(upload)
                .send(Method::POST, &format!("{key}?uploads"), &[], "")
                .await
                .expect(200);
            let id = element(begun.text(), "UploadId").to_owned();
            let part = format!("{key}?partNumber=1&uploadId={id}");
            let part = door(upload)
                .put(&part, &[], format!("part of {upload}"))
                .await
                .expect(200);
            (format!("{key}?uploadId={id}"), list(&[(1, part.etag())]))
        };
        let complete = async |upload: usize, (path, list): &(String, String), condition| {
            door(upload)
                .send(Method::POST, path, &[condition], list.clone())
                .await
        };
        let uploads = join_all((0..WRITERS / 2).map(begin)).await;
        let create = async |writer: usize| {
            let condition = ("if-none-match", "*");
            let answer = match uploads.get(writer) {
                Some(upload) => complete(writer, upload, condition).await,
                None => {
                    door(writer)
                        .put(&key, &[condition], format!("part of {writer}"))
                        .await
                }
            };
            answer.status.as_u16()
        };
        let winner = assert_one(&join_all((0..WRITERS).map(create)).await, &[412, 409]);
        let created = doors[0].get(&key, &[]).await.expect(200);
        assert_eq!(created.text(), format!("part of {winner}"));
        let tag = created.etag().to_owned();
        let uploads = join_all((0..WRITERS / 4).map(begin)).await;
        // Neighbours go through different doors, and do the same.
        let change = async |writer: usize| {
            let (door, condition) = (door(writer), ("if-match", &*tag));
            let answer = match writer / 4 {
                0 => {
                    door.put(&key, &[condition], format!("changed by {writer}"))
                        .await
                }
                1 => door.delete(&key, &[condition]).await,
                2 => {
                    door.put(&key, &[condition, ("x-amz-copy-source", &source)], "")
                        .await
                }
                _ => complete(writer, &uploads[writer % 4], condition).await,
            };
            answer.status.as_u16()
        };
        // 404: the writer that won has deleted it.
        let winner = assert_one(&join_all((0..WRITERS).map(change)).await, &[412, 409, 404]);
        let left = doors[attempt % doors.len()].get(&key, &[]).await;
        let expected = match winner / 4 {
            0 => format!("changed by {winner}"),
            1 => {
                left.expect(404);
                continue;
            }
            2 => "source".to_owned(),
            _ => format!("part of {}", winner % 4),
        };
        assert_eq!(left.expect(200).text(), expected);
    }
}

fn canonical(method: &Method, path: &str, lines: &str, names: &str, body: &str) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let with_value = |part: &str| {
        if part.contains('=') {
            part.to_owned()
        } else {
            format!("{part}=")
        }
    };
    let query = query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(with_value)
        .collect::<Vec<_>>()
        .join("&");
    format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body}")
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    hmac.update(text.as_bytes());
    hmac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Returns the time of day.
#[expect(
    clippy::disallowed_methods,
    reason = "signatures carry the time of day"
)]
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// Returns a time as `20261124T192224Z`.
fn amz_date(time: SystemTime) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let text = httpdate::fmt_http_date(time);
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, _] = parts[..] else {
        panic!("an HTTP date: {text}")
    };
    let month = MONTHS
        .iter()
        .position(|name| *name == month)
        .expect("a month")
        + 1;
    format!("{year}{month:02}{day}T{}Z", time.replace(':', ""))
}
