//! A host of components for tests: instances of a composition, which share nothing but what they reach by HTTP.

mod instance;
mod network;
mod port;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use wac_graph::types::Package;
use wac_graph::{CompositionGraph, EncodeOptions, plug};
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine};
use wasmtime_wasi_http::p3::bindings::ServicePre;

pub use instance::Instance;
pub use network::{Network, Notes};
pub use port::Port;
pub use wasmtime::Strategy;

/// A body that arrives or leaves.
pub type Body = UnsyncBoxBody<Bytes, wasmtime_wasi_http::Error>;

/// Longest wait for anything that a test waits for.
pub const LIMIT: Duration = Duration::from_mins(1);

/// A compiled component.
#[derive(Clone)]
pub struct Compiled {
    engine: Engine,
    service: Arc<ServicePre<instance::HostState>>,
}

/// Plugs a guest into the socket that a middleware imports, as `wac plug` does.
pub fn compose(middleware: &[u8], guest: &[u8]) -> Vec<u8> {
    let mut graph = CompositionGraph::new();
    let mut register = |name: &str, bytes: &[u8]| {
        let package =
            Package::from_bytes(name, None, bytes, graph.types_mut()).expect("a component");
        graph
            .register_package(package)
            .expect("a package of this name once")
    };
    let (socket, guest) = (
        register("ifmatch:component", middleware),
        register("ifmatch:guest", guest),
    );
    plug(&mut graph, vec![guest], socket)
        .expect("the guest exports the handler that the middleware imports");
    graph
        .encode(EncodeOptions::default())
        .expect("a composition")
}

impl Compiled {
    /// Compiles a component: with Cranelift, for speed, or with Winch, which itself takes a fraction of the time.
    pub fn new(component: &[u8], compiler: Strategy) -> Self {
        let mut config = Config::new();
        config
            .wasm_component_model(true)
            .wasm_component_model_async(true)
            .strategy(compiler);
        let engine = Engine::new(&config).expect("a configuration that this build has");
        let component = Component::new(&engine, component).expect("a component");
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).expect("each interface once");
        wasmtime_wasi::p3::add_to_linker(&mut linker).expect("each interface once");
        wasmtime_wasi_http::p3::add_to_linker(&mut linker).expect("each interface once");
        let service = linker.instantiate_pre(&component).and_then(ServicePre::new);
        Self {
            engine,
            service: Arc::new(service.expect("a component of the world wasi:http/service")),
        }
    }

    /// Starts an instance with these environment variables.
    pub fn start(&self, network: &Network, variables: &[(&str, &str)]) -> Instance {
        Instance::start(
            &self.engine,
            Arc::clone(&self.service),
            network.clone(),
            variables,
        )
    }
}

/// What a component has written to its standard error.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Returns the text so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic while it is locked")).into_owned()
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The head.
    pub head: http::response::Parts,
    /// The content.
    pub content: Bytes,
    /// The trailers, if there are any.
    pub trailers: HashMap<String, String>,
}

impl Answer {
    /// Reads a response to its end.
    pub async fn of(response: Response<Body>) -> Result<Self, String> {
        let (head, body) = response.into_parts();
        let collected = body.collect().await.map_err(|error| format!("{error:?}"))?;
        let text = |value: &http::HeaderValue| value.to_str().expect("text").to_owned();
        let trailers = collected.trailers().into_iter().flatten();
        let trailers = trailers
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect();
        Ok(Self {
            head,
            content: collected.to_bytes(),
            trailers,
        })
    }

    /// Returns the status.
    pub fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    /// Returns a header field, or an empty text.
    pub fn field(&self, name: &str) -> &str {
        self.head
            .headers
            .get(name)
            .map_or("", |value| value.to_str().expect("text"))
    }

    /// Returns the content as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }
}

/// Makes a request from its head, such as `PUT /notes/a`, its header fields and its content.
pub fn request(head: &str, fields: &[(&str, &str)], content: impl Into<Bytes>) -> Request<Body> {
    let (method, path) = head.split_once(' ').expect("a method and a path");
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://service.example{path}"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let content = Full::new(content.into())
        .map_err(|never| match never {})
        .boxed_unsync();
    request.body(content).expect("a valid request")
}
