//! Connections to S3, Azure Blob Storage and Google Cloud Storage.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Method, Uri};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::Url;

use crate::failure::{OpenError, OpenErrorKind};

/// Default settings. A body may take as long as it needs while it makes progress. Objects are deleted one by one, which
/// every S3 server supports.
const DEFAULTS: [(&str, &str); 3] = [
    ("timeout", "1 day"),
    ("read_timeout", "30 seconds"),
    ("aws_disable_bulk_delete", "true"),
];

/// Connects to the store of a URL.
pub(super) fn connect(
    scheme: &ObjectStoreScheme,
    url: &Url,
    settings: impl Iterator<Item = (String, String)>,
    max_retries: usize,
) -> Result<Arc<dyn ObjectStore>, OpenError> {
    // An error means that the process has a provider already.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let defaults = DEFAULTS
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let settings = defaults.chain(settings);
    // The builders have no common trait.
    macro_rules! build {
        ($builder:expr) => {
            settings
                .fold(
                    $builder.with_url(url.as_str()),
                    |builder, (name, value)| match name.to_ascii_lowercase().parse() {
                        Ok(key) => builder.with_config(key, value),
                        Err(_) => builder,
                    },
                )
                .with_retry(retries(max_retries))
                .with_http_connector(ChangesOnce)
                .build()
                .map(|objects| Arc::new(objects) as Arc<dyn ObjectStore>)
        };
    }
    let objects = match scheme {
        ObjectStoreScheme::MicrosoftAzure => build!(MicrosoftAzureBuilder::new()),
        ObjectStoreScheme::GoogleCloudStorage => build!(GoogleCloudStorageBuilder::new()),
        _ => build!(AmazonS3Builder::new()),
    };
    objects.map_err(|error| {
        let what = format!(
            "{url} cannot be used: check the settings in the environment (AWS_…, AZURE_…, GOOGLE_…)"
        );
        OpenError::new(OpenErrorKind::Settings, what).because(error)
    })
}

/// Requests are retried for less time than a write permit lasts, changes only after a response: see [`ChangesOnce`].
fn retries(max_retries: usize) -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(2),
        base: 2.0,
    };
    RetryConfig {
        backoff,
        max_retries,
        retry_timeout: Duration::from_secs(15),
    }
}

/// Connects with a client that doesn't send a change again after its connection failed.
///
/// ```text
///   gateway                         store
///   PUT b = 2 ──────✕ (connection)  (arrives late)
///   PUT b = 2 ─────────────────────▶ b = 2, acknowledged
///   PUT b = 3 ─────────────────────▶ b = 3, acknowledged
///                                    the first request arrives: b = 2, unless a condition refuses it
/// ```
///
/// The crate [`object_store`] takes some failures after sending for failures before, and repeats even deletions.
/// Without a repetition, the outcome is unknown, and the writer keeps its permit (see `StoreState::grace`). Requests that
/// were answered with an error from the server are complete, and may be repeated.
#[derive(Debug)]
struct ChangesOnce;

impl HttpConnector for ChangesOnce {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Once(client)))
    }
}

#[derive(Debug)]
struct Once(HttpClient);

#[async_trait]
impl HttpService for Once {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_repeatable = is_repeatable(request.method(), request.uri());
        match self.0.execute(request).await {
            Err(error) if !is_repeatable && error.kind() != HttpErrorKind::Connect => {
                Err(HttpError::new(HttpErrorKind::Unknown, error))
            }
            result => result,
        }
    }
}

/// Returns `true` for reads, and for parts of uploads, which change no object.
fn is_repeatable(method: &Method, uri: &Uri) -> bool {
    let is_part = |parameter: &str| {
        ["partNumber=", "blockid="]
            .iter()
            .any(|name| parameter.starts_with(name))
    };
    method.is_safe()
        || uri
            .query()
            .is_some_and(|query| query.split('&').any(is_part))
}
