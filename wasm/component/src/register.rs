//! The register by HTTP, opened at its first use, and the lack of one.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use ifmatch_core::record::{Record, Revision};
use ifmatch_http_register::{Address, ConnectError, HttpRegister};
use ifmatch_register::{Engine, Key, Register, RegisterError, RegisterErrorKind, Scan, Swap};
use send_wrapper::SendWrapper;
use tokio::sync::OnceCell;
use wasip3::http::{client, types};

use crate::failed::FailedRequest;
use crate::incoming::{self, Incoming};
use crate::outgoing;

/// The host's HTTP client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClient;

impl tower::Service<Request<Full<Bytes>>> for HostClient {
    type Response = Response<Incoming<types::Response>>;
    type Error = FailedRequest;
    type Future = SendWrapper<Pin<Box<dyn Future<Output = Result<Self::Response, FailedRequest>>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), FailedRequest>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        SendWrapper::new(Box::pin(async {
            incoming::response(
                client::send(outgoing::request(request)?)
                    .await
                    .map_err(FailedRequest)?,
            )
        }))
    }
}

/// A register at an address. Until it could be opened, each call tries again, and fails as if the register were down.
pub(crate) struct RemoteRegister {
    address: Address,
    opened: OnceCell<HttpRegister<HostClient>>,
    /// The last error in the log: the calls that fail after it say nothing new.
    logged: Mutex<String>,
}

impl RemoteRegister {
    pub(crate) fn new(address: Address) -> Self {
        Self {
            address,
            opened: OnceCell::new(),
            logged: Mutex::default(),
        }
    }

    async fn opened(&self) -> Result<&HttpRegister<HostClient>, RegisterError> {
        let open = || HttpRegister::open(HostClient, self.address.clone());
        let opened: Result<_, ConnectError> = self.opened.get_or_try_init(open).await;
        opened.map_err(|error| {
            self.log_once(error.to_string());
            error.into()
        })
    }

    fn log_once(&self, error: String) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if *logged != error {
            tracing::error!("{error}");
            *logged = error;
        }
    }
}

#[async_trait]
impl Register for RemoteRegister {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.opened().await?.load(key).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        self.opened()
            .await?
            .compare_and_swap(key, expected, next)
            .await
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.opened().await?.scan(scan).await
    }

    fn engine(&self) -> Engine {
        self.opened.get().map(Register::engine).unwrap_or_default()
    }
}

/// The lack of a register. Reads do without one, and a guarded write fails.
pub(crate) struct NoRegister;

#[async_trait]
impl Register for NoRegister {
    async fn load(&self, _: &Key) -> Result<Option<Record>, RegisterError> {
        Err(RegisterErrorKind::Unavailable.into())
    }

    async fn compare_and_swap(
        &self,
        _: &Key,
        _: Revision,
        _: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        Err(RegisterErrorKind::Unavailable.into())
    }

    async fn scan(&self, _: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        Err(RegisterErrorKind::Unavailable.into())
    }
}
