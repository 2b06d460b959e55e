//! The service for S3 clients, and the hosts that may name a bucket.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::BodyExt;
use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::store::{BoxError, StoreError, StoreErrorKind};
use ifmatch_runtime::nonce;
use s3s::auth::{S3Auth, SecretKey};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::host::{S3Host, VirtualHost};
use s3s::route::S3Route;
use s3s::service::S3ServiceBuilder;
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tower_service::Service;

use crate::answer::{self, RequestId};
use crate::authorization::{self, AccessCheck, AnonymousRead};
use crate::backend::Backend;
use crate::bodies::document;
use crate::bodies::incoming::IncomingBody;
use crate::bodies::memory::ClientMemory;
use crate::operations::multipart;
use crate::{conditions, signature};

/// S3's API over a blob store. Requests are signed (Signature Version 4) with the key of an account: the account's name is the
/// access key id, and its key in base64 the secret key. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
///
/// use ifmatch_blob::accounts::Accounts;
/// use ifmatch_blob::BlobService;
/// use ifmatch_blob_indexed::IndexedStore;
/// use ifmatch_s3::S3Service;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let blobs = BlobService::new(Arc::new(IndexedStore::open(folder.path()).await?));
/// let objects = S3Service::new(blobs.context().clone(), Accounts::development());
/// # let _ = objects;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct S3Service {
    backend: Backend,
    hosts: Vec<String>,
    /// The same service for each of the keys of an account, since `s3s` knows one secret key for an access key id.
    keyed: Arc<[s3s::service::S3Service]>,
    public_read: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl S3Service {
    /// Creates a service that shares the store and the settings of a [`BlobService`](ifmatch_blob::BlobService).
    pub fn new(context: Context, accounts: Accounts) -> Self {
        Self::with(
            Backend {
                context,
                accounts,
                is_encrypted: false,
            },
            Vec::new(),
            Arc::new(|| false),
        )
    }

    /// Serves `http://BUCKET.NAME/key` for these host names, too (virtual-host style).
    #[must_use]
    pub fn hosts(self, names: &[String]) -> Self {
        Self::with(self.backend, names.to_vec(), self.public_read)
    }

    /// States that the disk or the store encrypts all objects, so clients may ask for `AES256`. Otherwise they are refused, since nothing
    /// here encrypts.
    #[must_use]
    pub fn encrypted_at_rest(self, is_encrypted: bool) -> Self {
        Self::with(
            Backend {
                is_encrypted,
                ..self.backend
            },
            self.hosts,
            self.public_read,
        )
    }

    fn with(
        backend: Backend,
        hosts: Vec<String>,
        public_read: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Self {
        let keyed = build(&backend, &hosts);
        Self {
            backend,
            hosts,
            keyed,
            public_read,
        }
    }

    /// Admits reads and listings without a signature while `allowed` returns `true`: of the default account, whose buckets the
    /// plain dialect shows.
    #[must_use]
    pub fn public_read(self, allowed: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            public_read: Arc::new(allowed),
            ..self
        }
    }

    /// Removes uploads that weren't completed within a week, with their parts. Returns the number of entries removed.
    ///
    /// Call it about once a day.
    ///
    /// # Errors
    /// The store failed. Entries removed before stay removed.
    pub async fn collect(&self) -> Result<u64, StoreError> {
        multipart::collect(&self.backend.context).await
    }

    /// Responds to a request. An error is in S3's form.
    async fn respond(&self, request: Request<s3s::Body>) -> S3Result<Response<s3s::Body>> {
        let (mut head, body) = request.into_parts();
        authorization::refuse_form(&head)?;
        authorization::refuse_options(&head)?;
        let key = match self.authenticate(&mut head).await? {
            Ok(key) => key,
            Err(refusal) => return Ok(refusal),
        };
        let memory = ClientMemory {
            documents: self.backend.context.documents.clone(),
            client: head.extensions.get().copied(),
        };
        let incoming = IncomingBody::new(memory);
        let body = incoming.body(&head, body);
        let is_read = head.method.is_safe();
        head.extensions.insert(incoming.clone());
        let request = Request::from_parts(head, body);
        let response = self.call_library(key, request).await?;
        match incoming.refused() {
            Some(refused) if !response.status().is_success() => Err(refused),
            _ if is_read => incoming.counted(response),
            _ => Ok(incoming.in_place(response)),
        }
    }

    /// Returns the key of the account to pass a request on with, by its index, or the library's refusal. The library verifies the
    /// signature then. Lists of tags, which it doesn't know, are taken out of a request, and with them its signature.
    async fn authenticate(&self, head: &mut Parts) -> S3Result<Result<usize, Response<s3s::Body>>> {
        let query = signature::parameters(head.uri.query().unwrap_or_default());
        if (self.public_read)() && signature::is_anonymous(head, &query) {
            head.extensions.insert(AnonymousRead);
            conditions::take_lists(head)?;
            return Ok(Ok(0));
        }
        let access_key = signature::check(head, &query)?;
        let signed = head.clone();
        let has_lists = conditions::take_lists(head)?;
        let key = self.signing_key(&access_key, &signed, has_lists).await?;
        if has_lists && key.is_ok() {
            signature::remove(head, access_key)?;
        }
        Ok(key)
    }

    /// Finds the key of the account that a request is signed with. Trusts that it is the last one if it is none of the others,
    /// unless `must_verify`.
    async fn signing_key(
        &self,
        access_key: &str,
        head: &Parts,
        must_verify: bool,
    ) -> S3Result<Result<usize, Response<s3s::Body>>> {
        let account = self.backend.accounts.get(access_key);
        let last = account.map_or(0, |account| account.secrets().count().saturating_sub(1));
        for key in 0..last {
            if self.verify(key, head).await?.status().is_success() {
                return Ok(Ok(key));
            }
        }
        if must_verify {
            let verified = self.verify(last, head).await?;
            if !verified.status().is_success() {
                return Ok(Err(verified));
            }
        }
        Ok(Ok(last))
    }

    /// Verifies the signature of a request with this key of the account. Returns a response that is successful, or the refusal.
    async fn verify(&self, key: usize, head: &Parts) -> S3Result<Response<s3s::Body>> {
        let mut request = Request::from_parts(head.clone(), s3s::Body::empty());
        request.extensions_mut().insert(OnlyVerify);
        self.call_library(key, request).await
    }

    /// Passes a request on to `s3s`, with this key of the accounts.
    async fn call_library(
        &self,
        key: usize,
        request: Request<s3s::Body>,
    ) -> S3Result<Response<s3s::Body>> {
        let service = self.keyed.get(key);
        let service = service.ok_or_else(|| s3_error!(InternalError))?;
        let response = service.call(request).await;
        response.map_err(|error| {
            s3_error!(
                InternalError,
                "the response could not be written: {error:?}"
            )
        })
    }
}

/// Shows the accounts only.
impl fmt::Debug for S3Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Service")
            .field("accounts", &self.backend.accounts)
            .finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for S3Service
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<BlobBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        let id = request
            .extensions()
            .get()
            .map(|RequestId(id)| id.clone())
            .or_else(new_id);
        let request =
            request.map(|body| s3s::Body::http_body_unsync(body.map_err(Into::<BoxError>::into)));
        Box::pin(async move {
            let response = match service.respond(request).await {
                Ok(response) => Ok(response),
                Err(error) => error.to_http_response(),
            };
            let response = response.unwrap_or_else(|_| {
                let mut response = Response::new(s3s::Body::empty());
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            });
            Ok(answer::complete(response, id.as_ref()).map(|body| {
                BlobBody::stream(
                    body.map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error)),
                )
            }))
        })
    }
}

/// Returns a new request ID, if the system provides random numbers.
fn new_id() -> Option<HeaderValue> {
    nonce()
        .ok()
        .and_then(|number| HeaderValue::try_from(format!("{number:016X}")).ok())
}

/// Builds a service for each of the keys of an account.
fn build(backend: &Backend, hosts: &[String]) -> Arc<[s3s::service::S3Service]> {
    let of_key = |key| {
        let mut config = S3Config::default();
        config.xml_max_body_size = document::MAX;
        let mut builder = S3ServiceBuilder::new(backend.clone());
        builder.set_auth(AccountKeys {
            accounts: backend.accounts.clone(),
            key,
        });
        builder.set_access(AccessCheck {
            accounts: backend.accounts.clone(),
            is_encrypted: backend.is_encrypted,
        });
        builder.set_route(OnlyVerify);
        builder.set_host(BucketHosts::new(hosts));
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        builder.build()
    };
    (0..Account::MAX_KEYS).map(of_key).collect()
}

/// The keys of all accounts with this index.
struct AccountKeys {
    accounts: Accounts,
    key: usize,
}

#[async_trait::async_trait]
impl S3Auth for AccountKeys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let secret = self
            .accounts
            .get(access_key)
            .and_then(|account| account.secrets().nth(self.key));
        secret.map(SecretKey::from).ok_or_else(|| {
            s3_error!(
                InvalidAccessKeyId,
                "there is no such access key id: use the name of an account of this gateway"
            )
        })
    }
}

/// Marks a request of which only the signature is verified.
#[derive(Clone, Copy)]
struct OnlyVerify;

#[async_trait::async_trait]
impl S3Route for OnlyVerify {
    fn is_match(
        &self,
        _: &Method,
        _: &Uri,
        _: &HeaderMap,
        extensions: &mut http::Extensions,
    ) -> bool {
        extensions.get::<Self>().is_some()
    }

    async fn call(&self, _: S3Request<s3s::Body>) -> S3Result<S3Response<s3s::Body>> {
        Ok(S3Response::new(s3s::Body::empty()))
    }
}

/// The hosts of which a bucket may be the first label. Requests to other hosts name the bucket in their path.
struct BucketHosts(Vec<String>);

impl BucketHosts {
    fn new(names: &[String]) -> Self {
        Self(
            names
                .iter()
                .map(|name| format!(".{}", name.trim_matches('.').to_ascii_lowercase()))
                .collect(),
        )
    }
}

impl S3Host for BucketHosts {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = host
            .rsplit_once(':')
            .map_or(host, |(name, _)| name)
            .to_ascii_lowercase();
        let bucket = self
            .0
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix.as_str()));
        let found = VirtualHost::new(host);
        Ok(match bucket {
            Some(bucket) => found.with_bucket(bucket.to_owned()),
            None => found,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_what_precedes_the_name_of_the_service() {
        let hosts = BucketHosts::new(&["s3.example.com".into(), "S3.internal".into()]);
        let bucket = |host: &str| {
            hosts
                .parse_host_header(host)
                .unwrap()
                .bucket()
                .map(ToOwned::to_owned)
        };
        for (host, expected) in [
            ("docs.s3.example.com", Some("docs")),
            ("Docs.S3.Example.com:8000", Some("docs")),
            ("a.b.s3.internal", Some("a.b")),
            ("s3.example.com", None),
            ("docs3.example.com", None),
            ("docs.s3.example.com.evil.example", None),
            ("localhost:10003", None),
        ] {
            assert_eq!(bucket(host).as_deref(), expected, "{host}");
        }
    }
}
