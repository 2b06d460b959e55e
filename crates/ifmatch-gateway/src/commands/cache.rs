//! The shared cache, in front of upstreams or of an object store.

use http::{HeaderMap, Request, Uri, header};
use ifmatch_azure::auth::shared_access;
use ifmatch_blob_indexed as indexed;
use ifmatch_cache::{Builder, CacheLayer, Disk};

use ifmatch_gateway_commands::store_url::check_folder;
use ifmatch_gateway_config::CacheConfig;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_service::request_id::X_REQUEST_ID;

/// Returns the builder for either kind of cache.
///
/// # Errors
/// Fails if the folder for large bodies can't be used.
pub(crate) fn builder(config: &CacheConfig) -> Result<Builder, Error> {
    // Each request has its own id.
    let builder = CacheLayer::builder()
        .capacity(config.memory)
        .entry_limit(config.body)
        .never_store([X_REQUEST_ID]);
    let Some((folder, bytes)) = &config.disk else {
        return Ok(builder);
    };
    check_folder("--cache-dir", folder)?;
    // Accessible to this user only: it may contain blobs that others need a token for.
    let disk = indexed::create_folder(folder)
        .and_then(|()| Disk::open(folder, *bytes))
        .map_err(|error| {
            let message = format!(
                "can't use --cache-dir {}. Choose another folder ({error}).",
                folder.display()
            );
            let is_in_use = error.kind() == std::io::ErrorKind::ResourceBusy;
            if is_in_use {
                Error::in_use(message)
            } else {
                Error::runtime(message)
            }
        })?;
    Ok(builder.disk(disk))
}

/// Returns a cache in front of an object store.
///
/// Each response is revalidated, and the cache only saves the transfer of the bytes. Other programs may change the
/// store, and a blob has several URLs that a cache can't recognise as the same. A request in the plain dialect has
/// already been authorised for all blobs. Requests in Azure's dialect bypass the cache, since the blob service checks
/// their signature.
///
/// # Errors
/// Fails if the folder for large bodies can't be used.
pub(crate) fn before_blobs(config: &CacheConfig, scheme: &str) -> Result<CacheLayer, Error> {
    Ok(builder(config)?
        .scheme(scheme)
        .heuristic(None)
        .always_validate()
        .bypass(bypasses)
        .build())
}

/// Returns `true` for a request that only the blob service can answer: in Azure's dialect, with `x-ms-…` headers or a shared access
/// signature, about a lease, or with a preference, such as to wait for a change.
fn bypasses(uri: &Uri, headers: &HeaderMap) -> bool {
    let names = ["x-ms-", "lease-", "prefer"];
    shared_access::is_in(uri.query())
        || headers
            .keys()
            .any(|header| names.iter().any(|name| header.as_str().starts_with(name)))
}

/// Removes the token from an authorised request, so its response can be shared with other clients.
pub(crate) fn without_token<B>(mut request: Request<B>) -> Request<B> {
    if !bypasses(request.uri(), request.headers()) {
        request.headers_mut().remove(header::AUTHORIZATION);
    }
    request
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_folder_is_private() {
        let folder = std::env::temp_dir().join(format!("ifmatch-cache-{}", std::process::id()));
        let config = CacheConfig {
            memory: 1 << 20,
            body: 1 << 16,
            disk: Some((folder.clone(), 1 << 20)),
        };
        let opened = builder(&config).map(drop);
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
        std::fs::remove_dir_all(&folder).unwrap();
        opened.unwrap();
        assert_eq!(mode, 0o700);
    }

    #[test]
    fn tokens_are_removed_and_signatures_kept() {
        let request = || Request::get("/c/b").header("authorization", "Bearer t");
        assert!(
            bypasses(&Uri::from_static("/c/b?sp=r&sig=x"), &HeaderMap::new()),
            "a signature expires; a cache does not ask"
        );
        assert!(
            without_token(request().body(()).unwrap())
                .headers()
                .is_empty()
        );
        let signed = without_token(
            request()
                .header("x-ms-version", "2025-01-05")
                .body(())
                .unwrap(),
        );
        assert!(signed.headers().contains_key("authorization"));
    }
}
