//! ifmatch as a WebAssembly component of the world `wasi:http/middleware@0.3`: conditional requests for a service in any
//! language, in one process with it.
//!
//! A host calls this component's handler. It calls the handler of the component behind it, the *guest*, which a composition
//! supplies (`wac plug`). The settings are environment variables: see [`settings`].

mod bindings;
mod body;
mod guest;
mod log;
mod register;
mod service;
pub mod settings;

use http::StatusCode;
use ifmatch_core::problem::Problem;
use tower::ServiceExt;
use wasip3::exports::http::handler::Guest;
use wasip3::http::types::{ErrorCode, Request, Response};
use wasip3::http_compat::{http_from_wasi_request, http_into_wasi_response};

use body::{Body, Failed};
use service::Service;

/// The component.
struct Component;

#[allow(unsafe_code, reason = "generated")]
mod export {
    use super::Component;

    wasip3::http::service::export!(Component with_types_in wasip3);
}

impl Guest for Component {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let request = http_from_wasi_request(request)?.map(Body::new);
        match Service::configured() {
            Ok(service) => {
                let response = service.oneshot(request).await.map_err(|Failed(code)| code)?;
                http_into_wasi_response(response)
            }
            Err(error) => {
                let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "unusable-settings");
                let problem = problem.detail(format!("ifmatch can't run with its settings: {error}"));
                http_into_wasi_response(problem.to_response().map(http_body_util::Full::new))
            }
        }
    }
}
