//! The shared cache as the configuration wants it, before the upstreams of a proxy or before a store that is far.

use http::{HeaderMap, Request, header};
use ifmatch_blob_embedded as embedded;
use ifmatch_cache::{Builder, CacheLayer, Disk};
use tower_layer::Layer;
use tower_service::Service;

use std::task::{Context, Poll};

use crate::config::CacheConfig;
use crate::error::Error;
use crate::folder;
use crate::request_id::X_REQUEST_ID;

/// What both kinds have in common.
///
/// # Errors
/// The folder for large bodies cannot be used.
pub(crate) fn builder(config: &CacheConfig) -> Result<Builder, Error> {
    // Each request has an id of its own.
    let builder = CacheLayer::builder().capacity(config.memory).entry_limit(config.body).never_store([X_REQUEST_ID]);
    let Some((folder, bytes)) = &config.disk else { return Ok(builder) };
    folder::check("--cache-dir", folder)?;
    // For this user only: before a store it has blobs that others need a token for.
    let disk = embedded::create_folder(folder)
        .and_then(|()| Disk::open(folder, *bytes))
        .map_err(|error| Error::runtime(format!("--cache-dir {} cannot be used: {error}", folder.display())))?;
    Ok(builder.disk(disk))
}

/// A cache before a store of blobs.
///
/// Only the store knows the current version: it may be changed by others, and by names that a cache cannot tell to be the same. So
/// it is asked for each answer, and what is kept saves sending the bytes again. Whoever gets here may read all blobs, if
/// the request is in the plain dialect; what is said in Azure's goes to the blob service, which checks who says it.
///
/// # Errors
/// The folder for large bodies cannot be used.
pub(crate) fn before_blobs(config: &CacheConfig, scheme: &str) -> Result<CacheLayer, Error> {
    Ok(builder(config)?.scheme(scheme).heuristic(None).always_validate().bypass(is_for_the_service).build())
}

/// Leases, accounts and all else that is told by `x-ms-…`.
fn is_for_the_service(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("x-ms-"))
}

/// Removes the token from admitted requests, since their cached responses are not limited to its bearer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted;

impl<S> Layer<S> for Admitted {
    type Service = AdmittedService<S>;

    fn layer(&self, inner: S) -> AdmittedService<S> {
        AdmittedService { inner }
    }
}

/// A service whose requests were let in.
#[derive(Clone, Debug)]
pub(crate) struct AdmittedService<S> {
    inner: S,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for AdmittedService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if !is_for_the_service(request.headers()) {
            request.headers_mut().remove(header::AUTHORIZATION);
        }
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[derive(Clone)]
    struct Echo;

    impl Service<Request<()>> for Echo {
        type Response = HeaderMap;
        type Error = Infallible;
        type Future = Ready<Result<HeaderMap, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            ready(Ok(request.headers().clone()))
        }
    }

    #[test]
    fn nobody_else_looks_into_a_new_folder() {
        let folder = std::env::temp_dir().join(format!("ifmatch-cache-{}", std::process::id()));
        let config = CacheConfig { memory: 1 << 20, body: 1 << 10, disk: Some((folder.clone(), 1 << 20)) };
        let opened = builder(&config).map(drop);
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
        std::fs::remove_dir_all(&folder).unwrap();
        opened.unwrap();
        assert_eq!(mode, 0o700);
    }

    #[tokio::test]
    async fn a_signature_stays_and_a_token_goes() {
        let request = || Request::get("/c/b").header("authorization", "Bearer t");
        let mut service = Admitted.layer(Echo);
        let plain = service.call(request().body(()).unwrap()).await.unwrap();
        assert!(!plain.contains_key("authorization"));
        let signed = service.call(request().header("x-ms-version", "2025-01-05").body(()).unwrap()).await.unwrap();
        assert!(signed.contains_key("authorization"));
    }
}
