//! The layer around the guest, as the settings say.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use http::{Request, StatusCode};
use http_body_util::Full;
use ifmatch::{ConditionalLayer, ConditionalService};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;
use tower::{Layer, ServiceExt};
use wasip3::cli::environment;
use wasip3::http::types;

use crate::failed::FailedRequest;
use crate::guest::{self, GuestService};
use crate::log;
use crate::register::{NoRegister, RemoteRegister};
use crate::settings::{ComponentSettings, Records, UnusableSettings};
use crate::{incoming, outgoing};

/// The guest with conditional requests.
#[derive(Clone)]
pub(crate) struct Service {
    settings: &'static ComponentSettings,
    /// For reads. Without a register that all instances share, it remembers nothing: another instance's write would go unnoticed.
    reads: ConditionalService<GuestService>,
    writes: ConditionalService<GuestService>,
}

/// The service of this instance, or why there is none.
static SERVICE: LazyLock<Result<Service, UnusableSettings>> = LazyLock::new(|| {
    log::begin();
    let variables = environment::get_environment();
    let get = |name: &str| {
        variables
            .iter()
            .find(|(its, _)| its == name)
            .map(|(_, value)| value.clone())
    };
    let settings = ComponentSettings::read(get).inspect_err(|error| tracing::error!("{error}"))?;
    Ok(Service::new(Box::leak(Box::new(settings))))
});

impl Service {
    /// Returns the service of this instance.
    pub(crate) fn configured() -> Result<Self, UnusableSettings> {
        SERVICE.clone()
    }

    fn new(settings: &'static ComponentSettings) -> Self {
        let builder = || {
            let mut builder = ConditionalLayer::builder()
                .key(settings.key.clone())
                // In some languages, the result of a body is easily overlooked.
                .refuse_broken_bodies()
                .require_preconditions(settings.required.clone())
                .max_staleness(settings.max_staleness);
            if let Some(limit) = settings.hash_limit {
                builder = builder.hash_limit(limit);
            }
            if let Some(timeout) = settings.write_timeout {
                builder = builder.write_timeout(timeout);
            }
            if settings.authoritative {
                builder = builder.authoritative();
            }
            builder
        };
        let unshared = || builder().register(NoRegister).build().layer(GuestService);
        let (reads, writes) = match &settings.records {
            Records::None => {
                let both = unshared();
                (both.clone(), both)
            }
            Records::Instance => (unshared(), builder().build().layer(GuestService)),
            Records::Remote(address) => {
                let both = builder()
                    .register(RemoteRegister::new(address.clone()))
                    .build()
                    .layer(GuestService);
                (both.clone(), both)
            }
        };
        Self {
            settings,
            reads,
            writes,
        }
    }

    /// Answers a request. The guest gets those that aren't touched as the host has made them.
    pub(crate) async fn answer(
        &self,
        request: types::Request,
    ) -> Result<types::Response, FailedRequest> {
        if incoming::path(&request).is_some_and(|path| !self.settings.covers(path.path())) {
            return guest::pass(request).await;
        }
        let (head, mut body) = incoming::request(request)?.into_parts();
        let conditions = Preconditions::from_headers(&head.headers);
        if let Some(refused) = unkept(&self.settings.records, &head, &conditions) {
            return outgoing::response(refused.to_response().map(Full::new));
        }
        let is_unguarded = matches!(self.settings.records, Records::None) && !head.method.is_safe();
        if is_unguarded
            && !self.settings.required.refuses(&head.method, &conditions)
            && let Some(request) = body.take_untouched()
        {
            return guest::pass(request).await;
        }
        let layered = if head.method.is_safe() {
            &self.reads
        } else {
            &self.writes
        };
        outgoing::response(
            layered
                .clone()
                .oneshot(Request::from_parts(head, body))
                .await?,
        )
    }
}

/// Returns the refusal of a write with a condition that no register keeps. The first write in the memory of an instance is
/// logged instead: the operator has asked for it.
fn unkept(records: &Records, head: &Parts, conditions: &Preconditions) -> Option<Problem> {
    static IS_SAID: AtomicBool = AtomicBool::new(false);

    let is_write = !head.method.is_safe();
    match records {
        Records::Instance if is_write && !IS_SAID.swap(true, Ordering::Relaxed) => {
            tracing::warn!(
                "IFMATCH_REGISTER is `instance`: writes exclude each other only within one instance of the component, so of \
                 two clients on two instances both may succeed"
            );
            None
        }
        Records::None if is_write && conditions.has_write_condition() => {
            let detail = "the service has no register, so it can't compare and write in one step: its operator must set \
                          IFMATCH_REGISTER";
            Some(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no-register").detail(detail))
        }
        _ => None,
    }
}
