//! An instance of a component, which takes several requests at a time until it traps.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::{Request, Response};
use tokio::io::AsyncWrite;
use tokio::sync::{mpsc, oneshot};
use wasmtime::component::{Accessor, ResourceTable};
use wasmtime::{Engine, ResourceLimiter, Store};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::p3::bindings::{Service, ServicePre};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView, p3};

use crate::network::Network;
use crate::{Answer, Body, LIMIT, Log};

type Reply = Result<Response<Body>, String>;

/// A running instance.
#[derive(Clone)]
pub struct Instance {
    requests: mpsc::UnboundedSender<(Request<Body>, oneshot::Sender<Reply>)>,
    log: Log,
    memory: Memory,
    /// Why it has ended.
    end: Shared<BoxFuture<'static, String>>,
}

impl Instance {
    pub(crate) fn start(
        engine: &Engine,
        service: Arc<ServicePre<HostState>>,
        network: Network,
        variables: &[(&str, &str)],
    ) -> Self {
        let (requests, taken) = mpsc::unbounded_channel();
        let log = Log::default();
        let wasi = WasiCtx::builder()
            .envs(variables)
            .stderr(log.clone())
            .build();
        let memory = Memory::default();
        let (http, table) = (WasiHttpCtx::new(), ResourceTable::new());
        let mut store = Store::new(
            engine,
            HostState {
                wasi,
                http,
                table,
                network,
                memory: memory.clone(),
            },
        );
        store.limiter(|state| &mut state.memory);
        let running = tokio::spawn(async move {
            let service = service.instantiate_async(&mut store).await?;
            store
                .run_concurrent(async |accessor| serve(accessor, &service, taken).await)
                .await?
        });
        let end = async {
            match running.await {
                Ok(Ok(())) => "the instance has ended".to_owned(),
                Ok(Err(trap)) => format!("the instance has trapped: {trap:?}"),
                Err(panic) => format!("the host has panicked: {panic}"),
            }
        };
        let end = end.boxed().shared();
        Self {
            requests,
            log,
            memory,
            end,
        }
    }

    /// Returns what it has written to its standard error.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the bytes of memory that its components have.
    pub fn memory(&self) -> usize {
        self.memory.0.load(Ordering::Relaxed)
    }

    /// Sends a request, and returns the response once its head is there. The error is what a server would turn into 500 or 502.
    pub async fn send(&self, request: Request<Body>) -> Reply {
        let (tell, told) = oneshot::channel();
        if self.requests.send((request, tell)).is_ok() {
            let reply = tokio::time::timeout(LIMIT, told)
                .await
                .map_err(|_| "no response within a minute".to_owned())?;
            if let Ok(reply) = reply {
                return reply;
            }
        }
        Err(self.end.clone().await)
    }

    /// Sends a request, and reads the whole answer.
    pub async fn call(&self, request: Request<Body>) -> Result<Answer, String> {
        let response = self.send(request).await?;
        tokio::time::timeout(LIMIT, Answer::of(response))
            .await
            .map_err(|_| "no end within a minute".to_owned())?
    }
}

/// Takes requests until the instance has trapped or all its clients have gone.
async fn serve(
    accessor: &Accessor<HostState>,
    service: &Service,
    mut taken: mpsc::UnboundedReceiver<(Request<Body>, oneshot::Sender<Reply>)>,
) -> wasmtime::Result<()> {
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            request = taken.recv() => match request {
                Some((request, tell)) => running.push(answer(accessor, service, request, tell)),
                None => return Ok(()),
            },
            Some(answered) = running.next() => answered?,
        }
    }
}

/// Answers a request. Fails if the instance traps.
async fn answer(
    accessor: &Accessor<HostState>,
    service: &Service,
    request: Request<Body>,
    tell: oneshot::Sender<Reply>,
) -> wasmtime::Result<()> {
    let request =
        accessor.with(|mut store| p3::Request::from_http(store.get().http().hooks, request).0);
    let reply = match service.handle(accessor, request).await? {
        Ok(response) => Ok(accessor.with(|store| response.into_http(store, async { Ok(()) }))?),
        Err(code) => Err(format!("{code:?}")),
    };
    // The client may have gone.
    let _ = tell.send(reply);
    Ok(())
}

/// The state of an instance outside of it.
pub struct HostState {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    table: ResourceTable,
    network: Network,
    memory: Memory,
}

/// The bytes of memory of an instance.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<AtomicUsize>);

impl ResourceLimiter for Memory {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.0.fetch_add(desired - current, Ordering::Relaxed);
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for HostState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.network,
            table: &mut self.table,
            ctx: &mut self.http,
        }
    }
}

impl IsTerminal for Log {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Log {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for Log {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0
            .lock()
            .expect("no panic while it is locked")
            .extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
