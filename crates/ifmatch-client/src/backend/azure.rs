//! A backend in a container of Azure Blob Storage, by the requests of its REST API.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use ifmatch_core::date::HttpDate;
use ifmatch_core::shared_key::{self, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Key, X_MS_DATE};
use ifmatch_runtime::{Clock, SystemClock};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::answer::failure;
use super::http::{Http, HttpError, IDEMPOTENCY_KEY, encode};
use super::{Backend, Put, REPEATED_PAGE, Read};
use crate::error::Error;
use crate::version::Version;

const X_MS_VERSION: HeaderName = HeaderName::from_static("x-ms-version");
/// Version of the REST API.
const VERSION: HeaderValue = HeaderValue::from_static("2021-12-02");
const BLOB_TYPE: HeaderName = HeaderName::from_static("x-ms-blob-type");
/// Identity of a request. The ifmatch gateway recognises a repeated one by it.
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");

/// A container in Azure Blob Storage, Azurite, or an account of the ifmatch gateway. Keys are blob names. The container
/// must exist.
///
/// ```
/// use ifmatch_client::{Azure, Client};
///
/// # fn main() -> Result<(), ifmatch_client::HttpError> {
/// let container = Azure::from_connection_string("UseDevelopmentStorage=true", "conf")?;
/// let client = Client::new(container);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Azure(Http);

impl Azure {
    /// Creates a backend for the container at this URL, such as `https://account.blob.core.windows.net/conf`. Sends the
    /// URL's query, such as a shared access signature, with every request.
    ///
    /// # Errors
    /// Same as [`Http::new`]; also fails if the URL names no container.
    ///
    /// ```
    /// # use ifmatch_client::Azure;
    /// assert!(Azure::new("https://account.blob.core.windows.net/conf?sv=2021-12-02&sig=a").is_ok());
    /// assert!(Azure::new("https://account.blob.core.windows.net").is_err());
    /// ```
    pub fn new(url: &str) -> Result<Self, HttpError> {
        Self::with_step(url, |_| Ok(()))
    }

    /// Creates a backend that signs each request with the account's key, in base64 (`SharedKey`).
    ///
    /// # Errors
    /// Same as [`new`](Self::new); also fails if the key isn't base64.
    ///
    /// ```
    /// # use ifmatch_client::Azure;
    /// let url = "https://photos.blob.core.windows.net/conf";
    /// assert!(Azure::with_key(url, "photos", "c2VjcmV0").is_ok());
    /// assert!(Azure::with_key(url, "photos", "no base64!").is_err());
    /// ```
    pub fn with_key(url: &str, account: &str, key: &str) -> Result<Self, HttpError> {
        let key = Key::from_base64(key).map_err(|error| HttpError(error.to_string()))?;
        let account = account.to_owned();
        Self::with_step(url, move |head| sign(head, &account, &key))
    }

    /// Creates a backend for a container from a connection string, as Azure's portal shows it:
    /// `AccountName=…;AccountKey=…` with `BlobEndpoint` or `EndpointSuffix`, `BlobEndpoint=…;SharedAccessSignature=…`,
    /// or `UseDevelopmentStorage=true`.
    ///
    /// # Errors
    /// Fails if a part is missing or malformed. The message doesn't contain the key.
    ///
    /// ```
    /// # use ifmatch_client::Azure;
    /// assert!(Azure::from_connection_string("AccountName=photos;AccountKey=c2VjcmV0", "conf").is_ok());
    /// assert!(Azure::from_connection_string("AccountName=photos", "conf").is_err());
    /// ```
    pub fn from_connection_string(text: &str, container: &str) -> Result<Self, HttpError> {
        let Endpoint { url, credentials } = Endpoint::parse(text)?;
        let url = format!("{}/{}", url.trim_end_matches('/'), encode(container));
        match credentials {
            Credentials::Key { account, key } => Self::with_key(&url, account, key),
            Credentials::Signature(signature) => {
                Self::new(&format!("{url}?{}", signature.trim_start_matches('?')))
            }
        }
    }

    /// Creates a backend whose requests have Azure's header fields, before the step.
    fn with_step(
        url: &str,
        step: impl Fn(&mut Parts) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<Self, HttpError> {
        let http = Http::new(url)?.with_header(X_MS_VERSION, VERSION);
        if http.path == "/" {
            return Err(HttpError(
                "the URL names no container, such as https://account.blob.core.windows.net/conf"
                    .into(),
            ));
        }
        Ok(Self(http.with_last_step(move |head| {
            if let Some(id) = head.headers.remove(IDEMPOTENCY_KEY) {
                head.headers.insert(CLIENT_REQUEST_ID, id);
            }
            if head.method == Method::PUT {
                head.headers
                    .insert(BLOB_TYPE, HeaderValue::from_static("BlockBlob"));
            }
            step(head)
        })))
    }

    /// Returns a page of the listing, and the marker of the next one.
    async fn page(&self, prefix: &str, marker: &str) -> Result<Listing, Error> {
        let container = self.0.path.trim_end_matches('/');
        let (prefix, marker) = (encode(prefix), encode(marker));
        let path =
            format!("{container}?restype=container&comp=list&prefix={prefix}&marker={marker}");
        let response = self
            .0
            .send_to(Method::GET, path, HeaderMap::new(), Bytes::new())
            .await?;
        if response.status() != StatusCode::OK {
            return Err(failure(&response));
        }
        let wrong = |error: &dyn std::fmt::Display| {
            Error::refused(format!("the listing cannot be read: {error}"))
        };
        let text = std::str::from_utf8(response.body()).map_err(|error| wrong(&error))?;
        quick_xml::de::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| wrong(&error))
    }
}

/// Adds the date and the signature.
fn sign(head: &mut Parts, account: &str, key: &Key) -> Result<(), Error> {
    let value = |text: String| {
        HeaderValue::try_from(text).map_err(|error| Error::refused(error.to_string()))
    };
    let seconds = SystemClock.wall().micros() / 1_000_000;
    let date = HttpDate::from_unix(seconds.try_into().unwrap_or(i64::MAX));
    head.headers.insert(X_MS_DATE, value(date.to_string())?);
    let text = shared_key::blob(head, account);
    let text = text.ok_or_else(|| {
        Error::refused("the request cannot be signed: a field or parameter is not text")
    })?;
    let mut signature = value(format!("SharedKey {account}:{}", key.sign(&text)))?;
    signature.set_sensitive(true);
    head.headers.insert(AUTHORIZATION, signature);
    Ok(())
}

impl Backend for Azure {
    fn get<'a>(
        &'a self,
        key: &'a str,
        known: Option<&'a Version>,
        wait: Option<Duration>,
    ) -> BoxFuture<'a, Result<Read, Error>> {
        self.0.get(key, known, wait)
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        put: &'a Put,
    ) -> BoxFuture<'a, Result<Option<Version>, Error>> {
        self.0.put(key, put)
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            let response = self.0.send_delete(key, version).await?;
            // A deletion has taken effect when Azure accepts it.
            if response.status() == StatusCode::ACCEPTED {
                Ok(())
            } else {
                Err(failure(&response))
            }
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        async move {
            let (mut keys, mut marker) = (Vec::new(), String::new());
            loop {
                let page = self.page(prefix, &marker).await?;
                for blob in page.blobs.blobs {
                    keys.push(blob.name.decoded()?);
                }
                match page.next.filter(|next| !next.is_empty()) {
                    Some(next) if next == marker => return Err(Error::refused(REPEATED_PAGE)),
                    Some(next) => marker = next,
                    None => return Ok(keys),
                }
            }
        }
        .boxed()
    }
}

/// The response to List Blobs.
#[derive(Deserialize)]
struct Listing {
    #[serde(rename = "Blobs", default)]
    blobs: Blobs,
    #[serde(rename = "NextMarker")]
    next: Option<String>,
}

#[derive(Default, Deserialize)]
struct Blobs {
    #[serde(rename = "Blob", default)]
    blobs: Vec<Blob>,
}

#[derive(Deserialize)]
struct Blob {
    #[serde(rename = "Name")]
    name: Name,
}

#[derive(Deserialize)]
struct Name {
    /// `true` for a name with characters that XML doesn't allow, which is percent-encoded.
    #[serde(rename = "@Encoded", default)]
    encoded: bool,
    #[serde(rename = "$text")]
    text: String,
}

impl Name {
    fn decoded(self) -> Result<String, Error> {
        if !self.encoded {
            return Ok(self.text);
        }
        let decoded = percent_decode_str(&self.text).decode_utf8();
        decoded
            .map(Into::into)
            .map_err(|_| Error::refused(format!("{} is not UTF-8", self.text)))
    }
}

/// The parts of a connection string.
#[derive(Debug, PartialEq, Eq)]
struct Endpoint<'a> {
    /// URL of the account's containers.
    url: String,
    credentials: Credentials<'a>,
}

/// How requests are authorized.
#[derive(Debug, PartialEq, Eq)]
enum Credentials<'a> {
    Key {
        account: &'a str,
        key: &'a str,
    },
    /// A shared access signature.
    Signature(&'a str),
}

impl<'a> Endpoint<'a> {
    fn parse(text: &'a str) -> Result<Self, HttpError> {
        let part = |wanted: &str| {
            let parts = text.split(';').filter_map(|part| part.split_once('='));
            parts
                .map(|(name, value)| (name.trim(), value.trim()))
                .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        let part = |wanted| {
            part(wanted)
                .map(|(_, value)| value)
                .filter(|value| !value.is_empty())
        };
        let missing = |what: &str| HttpError(format!("the connection string has no {what}"));
        if part("UseDevelopmentStorage").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            if part("DevelopmentStorageProxyUri").is_some() {
                return Err(HttpError(
                    "DevelopmentStorageProxyUri is not supported: name the BlobEndpoint".into(),
                ));
            }
            let credentials = Credentials::Key {
                account: DEVELOPMENT_ACCOUNT,
                key: DEVELOPMENT_KEY,
            };
            return Ok(Self {
                url: format!("http://127.0.0.1:10000/{DEVELOPMENT_ACCOUNT}"),
                credentials,
            });
        }
        let account = part("AccountName");
        let url = match (part("BlobEndpoint"), account) {
            (Some(url), _) => url.to_owned(),
            (None, Some(account)) => {
                let scheme = part("DefaultEndpointsProtocol").unwrap_or("https");
                format!(
                    "{scheme}://{account}.blob.{}",
                    part("EndpointSuffix").unwrap_or("core.windows.net")
                )
            }
            (None, None) => return Err(missing("BlobEndpoint and no AccountName")),
        };
        let credentials = match (account, part("AccountKey"), part("SharedAccessSignature")) {
            (Some(account), Some(key), _) => Credentials::Key { account, key },
            (None, Some(_), _) => return Err(missing("AccountName")),
            (_, None, Some(signature)) => Credentials::Signature(signature),
            (_, None, None) => return Err(missing("AccountKey and no SharedAccessSignature")),
        };
        Ok(Self { url, credentials })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_has_an_endpoint_and_a_key_or_a_signature() {
        let parsed = |text| Endpoint::parse(text).unwrap();
        let key = |account| Credentials::Key {
            account,
            key: "a2V5==",
        };
        let usual = parsed(
            "DefaultEndpointsProtocol=https;AccountName=one;AccountKey=a2V5==;EndpointSuffix=core.example",
        );
        assert_eq!(
            (usual.url.as_str(), usual.credentials),
            ("https://one.blob.core.example", key("one"))
        );
        let named =
            parsed("accountname=one; accountkey=a2V5==; blobendpoint=http://127.0.0.1:1/one;");
        assert_eq!(
            (named.url.as_str(), named.credentials),
            ("http://127.0.0.1:1/one", key("one"))
        );
        let signed =
            parsed("BlobEndpoint=https://one.example/;SharedAccessSignature=sv=1&sig=a%3D");
        assert_eq!(signed.credentials, Credentials::Signature("sv=1&sig=a%3D"));
        assert_eq!(
            parsed("UseDevelopmentStorage=true").url,
            "http://127.0.0.1:10000/devstoreaccount1"
        );
    }

    #[test]
    fn an_incomplete_connection_string_is_an_error_without_the_key() {
        for text in [
            "",
            "AccountName=one",
            "AccountKey=a2V5",
            "BlobEndpoint=https://one.example",
            "BlobEndpoint=https://one.example;AccountKey=a2V5",
            "AccountName=one;AccountKey=",
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://elsewhere",
            "AccountName=one;AccountKey=a2V5?",
        ] {
            let error = Azure::from_connection_string(text, "box").expect_err(text);
            assert!(!error.to_string().contains("a2V5"), "{error}");
        }
    }

    #[test]
    fn a_listing_has_names_with_entities_and_encoded_ones() {
        let page = |text| quick_xml::de::from_str::<Listing>(text).unwrap();
        let listing = page(
            "<?xml version=\"1.0\"?><EnumerationResults><Blobs><Blob><Name>a &amp; b</Name><Properties/></Blob>\
             <Blob><Name Encoded=\"true\">c%EF%BF%BE</Name></Blob></Blobs><NextMarker>m</NextMarker></EnumerationResults>",
        );
        let names: Vec<_> = listing
            .blobs
            .blobs
            .into_iter()
            .map(|blob| blob.name.decoded().unwrap())
            .collect();
        assert_eq!(
            (names, listing.next.as_deref()),
            (vec!["a & b".to_owned(), "c\u{fffe}".to_owned()], Some("m"))
        );
        let empty = page("<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>");
        assert!(empty.blobs.blobs.is_empty() && empty.next.is_none_or(|next| next.is_empty()));
    }
}
