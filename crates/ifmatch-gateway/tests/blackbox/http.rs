//! A client that sends requests unchanged, and responses that describe their requests on failure.

use std::fmt::Write as _;
use std::ops::Deref;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use support::Answer;
use support::azure::{Form, Signer, signed};
use support::raw::Connection;
use support::s3;

use crate::site::Endpoint;

/// A client that reuses a connection for reads, and opens one for each write.
pub(crate) struct Http<'a> {
    endpoint: &'a Endpoint,
    dialect: Dialect<'a>,
    /// The connection of the previous request, if it can be reused.
    connection: Option<Connection>,
}

/// A dialect, with what proves the right to send requests.
#[derive(Clone, Copy)]
enum Dialect<'a> {
    Plain(Option<&'a str>),
    Azure(&'a Signer, Form),
    S3(&'a s3::Signer),
}

/// The form of errors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Errors {
    /// Problem details.
    Json,
    /// JSON of the table service, with the code in a header as well.
    Tables,
    /// XML, with the code in a header as well.
    Azure,
    /// XML.
    S3,
}

/// A response, with a description of its request.
pub(crate) struct Reply {
    asked: String,
    errors: Errors,
    answer: Answer,
}

impl<'a> Http<'a> {
    pub(crate) fn plain(endpoint: &'a Endpoint, token: Option<&'a str>) -> Self {
        Self {
            endpoint,
            dialect: Dialect::Plain(token),
            connection: None,
        }
    }

    pub(crate) fn azure(endpoint: &'a Endpoint, signer: &'a Signer) -> Self {
        Self {
            endpoint,
            dialect: Dialect::Azure(signer, Form::Blob),
            connection: None,
        }
    }

    pub(crate) fn tables(endpoint: &'a Endpoint, signer: &'a Signer) -> Self {
        Self {
            endpoint,
            dialect: Dialect::Azure(signer, Form::Table),
            connection: None,
        }
    }

    pub(crate) fn s3(endpoint: &'a Endpoint, signer: &'a s3::Signer) -> Self {
        Self {
            endpoint,
            dialect: Dialect::S3(signer),
            connection: None,
        }
    }

    /// Sends a request, signed in the dialects of Azure and S3. In Azure's, the path begins after the account.
    #[track_caller]
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        content: impl AsRef<[u8]>,
    ) -> Reply {
        let request = self.request(method, path, fields, content.as_ref());
        self.exchange(&request)
    }

    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    #[track_caller]
    pub(crate) fn head(&mut self, path: &str) -> Reply {
        self.send("HEAD", path, &[], "")
    }

    #[track_caller]
    pub(crate) fn put(
        &mut self,
        path: &str,
        fields: &[(&str, &str)],
        content: impl AsRef<[u8]>,
    ) -> Reply {
        self.send("PUT", path, fields, content)
    }

    #[track_caller]
    pub(crate) fn delete(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        self.send("DELETE", path, fields, "")
    }

    /// Writes a block blob in Azure's dialect.
    #[track_caller]
    pub(crate) fn upload(
        &mut self,
        path: &str,
        fields: &[(&str, &str)],
        content: impl AsRef<[u8]>,
    ) -> Reply {
        self.put(
            path,
            &[&[("x-ms-blob-type", "BlockBlob")], fields].concat(),
            content,
        )
    }

    /// Performs a lease operation.
    #[track_caller]
    pub(crate) fn lease(&mut self, path: &str, action: &str, fields: &[(&str, &str)]) -> Reply {
        let and = if path.contains('?') { '&' } else { '?' };
        self.put(
            &format!("{path}{and}comp=lease"),
            &[&[("x-ms-lease-action", action)], fields].concat(),
            "",
        )
    }

    /// Builds a request, signed if needed.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        content: &[u8],
    ) -> Request<Bytes> {
        let method: Method = method.parse().expect("a method");
        let content = Bytes::copy_from_slice(content);
        let mut request = match self.dialect {
            Dialect::Azure(signer, form) => signed(signer, form, method, path, fields, content),
            Dialect::S3(signer) => signer.signed(method, path, fields, content, s3::now()),
            Dialect::Plain(_) => {
                let mut request = Request::builder().method(method).uri(path);
                for (name, value) in fields {
                    request = request.header(*name, *value);
                }
                request.body(content).expect("valid names and values")
            }
        };
        let (length, needs_length) = (request.body().len(), needs_length(&request));
        let headers = request.headers_mut();
        if needs_length && !headers.contains_key("transfer-encoding") {
            headers.entry("content-length").or_insert(length.into());
        }
        if let Dialect::Plain(Some(token)) = self.dialect
            && !headers.contains_key("authorization")
        {
            headers.insert(
                "authorization",
                format!("Bearer {token}").parse().expect("a token"),
            );
        }
        request
    }

    /// Sends a request unchanged and reads the response.
    #[track_caller]
    pub(crate) fn exchange(&mut self, request: &Request<Bytes>) -> Reply {
        let asked = described(request);
        let sent = [
            head(request, &self.endpoint.authority).as_bytes(),
            request.body(),
        ]
        .concat();
        // A server may close an idle connection at any time; safe requests are then sent again (RFC 9110 §9.2.2).
        let kept = self
            .connection
            .take()
            .filter(|_| request.method().is_safe() && request.body().is_empty());
        let mut connection = kept
            .and_then(|mut kept| {
                (kept.try_send(&sent).is_ok() && kept.is_answered()).then_some(kept)
            })
            .unwrap_or_else(|| {
                let mut opened = Connection::open(self.endpoint.address);
                opened.send(&sent);
                opened
            });
        let mut answer = read(&mut connection, request.method());
        while answer.status == StatusCode::CONTINUE {
            answer = read(&mut connection, request.method());
        }
        // A server may close the connection before it has read the whole body (RFC 9112 §9.6), without saying so.
        if request.body().is_empty()
            && answer
                .headers
                .get("connection")
                .is_none_or(|option| option != "close")
        {
            self.connection = Some(connection);
        }
        let errors = match self.dialect {
            Dialect::Azure(_, Form::Blob) => Errors::Azure,
            Dialect::Azure(_, Form::Table) => Errors::Tables,
            Dialect::S3(_) => Errors::S3,
            Dialect::Plain(_) => Errors::Json,
        };
        let reply = Reply {
            asked,
            errors,
            answer,
        };
        reply.is_well_formed(request.method());
        reply
    }
}

/// Returns the head of a request. `Accept-Encoding` keeps intermediaries from compressing.
pub(crate) fn head(request: &Request<Bytes>, authority: &str) -> String {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nhost: {authority}\r\n",
        request.method(),
        request.uri()
    );
    head += "accept-encoding: identity\r\n";
    for (name, value) in request.headers().iter().filter(|(name, _)| *name != "host") {
        let _ = write!(head, "{name}: {}\r\n", value.to_str().expect("text"));
    }
    head + "\r\n"
}

fn read(connection: &mut Connection, method: &Method) -> Answer {
    if method == Method::HEAD {
        connection.answer_to_head()
    } else {
        connection.answer()
    }
}

fn needs_length(request: &Request<Bytes>) -> bool {
    !request.body().is_empty()
        || matches!(
            request.method().as_str(),
            "PUT" | "POST" | "PATCH" | "MERGE"
        )
}

/// Describes a request in one line.
fn described(request: &Request<Bytes>) -> String {
    let mut text = format!("{} {}", request.method(), request.uri());
    let fields = request
        .headers()
        .iter()
        .filter(|(name, _)| *name != "authorization");
    for (name, value) in fields {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        let _ = write!(text, " · {name}: {value:.200}");
    }
    let _ = write!(text, " · {} bytes", request.body().len());
    text
}

impl Deref for Reply {
    type Target = Answer;

    fn deref(&self) -> &Answer {
        &self.answer
    }
}

impl Reply {
    /// Returns the response if it has this status, and fails otherwise.
    #[track_caller]
    #[allow(clippy::return_self_not_must_use, reason = "most callers only check")]
    pub(crate) fn is(self, status: u16) -> Self {
        if self.status != status {
            self.fail(&status.to_string());
        }
        self
    }

    /// Checks for an error with this status and code.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) {
        if self.status != status || self.code() != code {
            self.fail(&format!("{status} {code}"));
        }
    }

    /// Returns `true` if the server states that it changed nothing: because of a condition, a lease, another write, or
    /// load.
    pub(crate) fn changed_nothing(&self) -> bool {
        matches!(self.status.as_u16(), 409 | 412)
            || self.status == 503 && !self.text().contains("outcome-unknown")
    }

    /// Fails the case.
    #[track_caller]
    pub(crate) fn fail(&self, expected: &str) -> ! {
        panic!(
            "\n  request:  {}\n  expected: {expected}\n  got:      {}\n",
            self.asked,
            self.seen()
        )
    }

    /// Returns the error code of the dialects of Azure and S3.
    pub(crate) fn code(&self) -> &str {
        match self.errors {
            Errors::S3 => self.all("Code").first().copied().unwrap_or_default(),
            _ => self.field("x-ms-error-code"),
        }
    }

    /// Returns a header, or an empty string.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap_or("not text"))
    }

    /// Returns the texts of all XML elements with this name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let parts = self.text().split(open.as_str()).skip(1);
        parts
            .map(|part| part.split_once(close.as_str()).map_or("", |(text, _)| text))
            .collect()
    }

    fn seen(&self) -> String {
        let mut text = self.status.to_string();
        for (name, value) in &self.headers {
            let _ = write!(
                text,
                " · {name}: {}",
                String::from_utf8_lossy(value.as_bytes())
            );
        }
        let _ = write!(text, " · {:.400}", self.body.escape_ascii().to_string());
        text
    }

    /// Checks what holds for every response.
    #[track_caller]
    fn is_well_formed(&self, method: &Method) {
        let status = self.status.as_u16();
        let bodiless = *method == Method::HEAD || matches!(status, 204 | 304);
        if !bodiless
            && !self.headers.contains_key("content-length")
            && self.field("transfer-encoding") != "chunked"
        {
            self.fail("a body with a length or chunks");
        }
        if status < 400 {
            return;
        }
        let (code, media_type) = (self.code(), self.field("content-type"));
        let has_code =
            || self.all("Code") == [code] && !code.is_empty() && media_type == "application/xml";
        let is_right = match self.errors {
            Errors::Azure if bodiless => !code.is_empty() && media_type.is_empty(),
            _ if bodiless => true,
            Errors::Azure | Errors::S3 => has_code(),
            Errors::Tables => !code.is_empty() && self.json()["odata.error"]["code"] == code,
            Errors::Json => media_type.contains("json"),
        };
        if !is_right {
            self.fail("an error with one code, in the form of the dialect");
        }
    }
}
