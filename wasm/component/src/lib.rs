//! ifmatch as a WebAssembly component of the world `wasi:http/middleware@0.3`: conditional requests for a service in any
//! language, in one process with it.
//!
//! A host calls this component's handler. It calls the handler of the component behind it, the *guest*, which a composition
//! supplies (`wac plug`). The settings are environment variables: see [`settings`].
//!
//! A request passes through these modules:
//!
//! 1. `incoming` makes a request of Rust's crate `http` of it.
//! 2. `service` answers it by the layer, as the [`settings`] say.
//! 3. `guest` is the layer's inner service, and `register` keeps its records. Each sends its requests by `outgoing`, and reads the
//!    responses by `incoming`.
//! 4. `outgoing` hands the response to the host.
//!
//! `failed` has the errors of WASI, `log` writes events to standard error, and `bindings` has the guest's interface.

mod bindings;
mod failed;
mod guest;
mod incoming;
mod log;
mod outgoing;
mod register;
mod service;
pub mod settings;

use http::StatusCode;
use http_body_util::Full;
use ifmatch_core::problem::Problem;
use wasip3::exports::http::handler::Guest;
use wasip3::http::types::{ErrorCode, Request, Response};

use failed::FailedRequest;
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
        let answered = match Service::configured() {
            Ok(service) => service.answer(request).await,
            Err(error) => {
                let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "unusable-settings");
                let problem =
                    problem.detail(format!("ifmatch can't run with its settings: {error}"));
                outgoing::response(problem.to_response().map(Full::new))
            }
        };
        answered.map_err(|FailedRequest(code)| code)
    }
}
