//! Health checks: asking each server now and then whether it works.

use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Empty};
use tokio::time::{sleep, timeout};

use crate::proxy::Proxy;
use crate::upstream::Server;

impl Proxy {
    /// Checks the health of all servers for ever, if the builder was told to; else it ends at once. Spawn it beside the
    /// server.
    pub async fn watch_health(self) {
        let Some((path, interval)) = &self.shared.health else { return };
        loop {
            for upstream in self.shared.routes.upstreams() {
                for server in upstream.servers.iter() {
                    upstream.note(server, self.is_healthy(server, path, *interval).await);
                }
            }
            sleep(*interval).await;
        }
    }

    async fn is_healthy(&self, server: &Server, path: &str, patience: Duration) -> bool {
        let Some(address) = server.address(path) else { return false };
        let Ok(host) = HeaderValue::from_str(server.authority.as_str()) else { return false };
        let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
        let Ok(request) = Request::get(address).header(HOST, host).body(body) else { return false };
        let answer = timeout(patience, self.shared.client.request(request)).await;
        matches!(answer, Ok(Ok(response)) if response.status().is_success())
    }
}
