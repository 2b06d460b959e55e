//! A configuration of the proxy that can be run.

use std::time::Duration;

use ifmatch_proxy::{HealthCheck, Proxy, ProxyBuilder, Upstream};

use super::settings::{DEFAULT_CACHE, ProxySettings, Route};
use crate::access;
use crate::accounts::Reach;
use crate::config::server::{at_least_one, needed, not_zero};
use crate::config::{CacheConfig, ServerConfig};
use crate::error::Error;
use crate::settings::Settings;
use crate::switch::Switch;

/// What `ifmatch proxy` runs with. Made by [`ProxyConfig::from_settings`] only, so it is always sound.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// How to listen, and what clients may ask for.
    pub server: ServerConfig,
    /// Where requests go, with `/` for those that have no other route.
    pub routes: Vec<Route>,
    /// What is kept of responses, if anything.
    pub cache: Option<CacheConfig>,
    /// Responses that the cache shares without explicit permission from the upstreams.
    pub sharing: Sharing,
    /// Whether writes are guarded: the upstreams are changed through this proxy only.
    pub guards_writes: bool,
    /// `true` if another proxy of ours stands in front and reports the client.
    pub trusts_forwarded: bool,
    pub(super) answer_timeout: Duration,
    pub(super) proxy: ProxyBuilder,
}

/// Responses that a proxy's cache shares without explicit permission from the upstreams.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// `true` to guess a lifetime for responses that do not state one.
    pub guesses_lifetimes: bool,
    /// `true` to store responses with cookies that are not `public`.
    pub shares_cookies: bool,
}

impl ProxyConfig {
    /// Checks `settings` and what they say of the proxy, completed by the defaults, and reads the token files they name.
    ///
    /// Requests that are forwarded need no token: the upstream decides. The proxy's own endpoints do need one where other
    /// machines can reach them.
    ///
    /// # Errors
    /// Names the flags that are missing, contradict each other, or are for `ifmatch serve` only.
    ///
    /// ```
    /// use ifmatch_gateway::{proxy::ProxyConfig, settings::Settings};
    ///
    /// let settings = Settings::from_toml("listen = '0.0.0.0:80'\n[proxy]\nupstream = ['http://127.0.0.1:8000']").unwrap();
    /// assert!(!ProxyConfig::from_settings(settings).unwrap().server.access.is_open());
    /// assert!(ProxyConfig::from_settings(Settings::default()).unwrap_err().to_string().contains("--upstream"));
    /// ```
    pub fn from_settings(settings: Settings) -> Result<Self, Error> {
        refuse_storage(&settings)?;
        let mut settings = settings.or(Settings::defaults());
        let of_proxy = std::mem::take(&mut settings.proxy).or(ProxySettings::defaults());
        let listen = needed(settings.listen, "--listen")?;
        let access = access::from_settings(&settings, Reach::of([listen]))?;
        let access = if listen.is_loopback() { access } else { access.never_open() };
        let routes = routes(&of_proxy)?;
        let max_requests = at_least_one(settings.max_requests, "--max-requests")?;
        Ok(Self {
            server: ServerConfig::new(&settings, access)?,
            proxy: builder(&of_proxy, &routes, max_requests)?,
            routes,
            answer_timeout: not_zero(of_proxy.answer_timeout, "--answer-timeout")?,
            cache: CacheConfig::new(&settings, DEFAULT_CACHE)?,
            sharing: Sharing {
                guesses_lifetimes: of_proxy.guess_lifetimes.unwrap_or_default(),
                shares_cookies: of_proxy.share_cookies.unwrap_or_default(),
            },
            guards_writes: of_proxy.guard_writes.unwrap_or_default(),
            trusts_forwarded: of_proxy.trust_forwarded.unwrap_or_default(),
        })
    }
}

fn refuse_storage(settings: &Settings) -> Result<(), Error> {
    let set = [
        ("--data", settings.data.is_some()),
        ("--store", settings.store.is_some()),
        ("--require-conditions", settings.require_conditions == Some(true)),
        ("--listen-tables", matches!(settings.listen_tables, Some(Switch::On(_)))),
        ("--accounts", !settings.accounts.is_empty()),
    ];
    match set.into_iter().find(|(_, set)| *set) {
        Some((flag, _)) => Err(Error::usage(format!(
            "{flag} is for `ifmatch serve`: a proxy keeps no blobs, and forwards to the servers that --upstream names"
        ))),
        None => Ok(()),
    }
}

fn routes(settings: &ProxySettings) -> Result<Vec<Route>, Error> {
    let mut routes = settings.route.clone();
    if !settings.upstream.is_empty() {
        routes.push(Route { of: "/".to_owned(), upstream: settings.upstream.clone() });
    }
    if routes.is_empty() {
        return Err(Error::usage(
            "say where requests go: --upstream http://127.0.0.1:8000, or --route for some of them",
        ));
    }
    Ok(routes)
}

fn builder(settings: &ProxySettings, routes: &[Route], max_requests: u32) -> Result<ProxyBuilder, Error> {
    let mut builder = Proxy::builder()
        .rewrite_host(settings.rewrite_host.unwrap_or_default())
        .trust_forwarded(settings.trust_forwarded.unwrap_or_default())
        .connect_timeout(not_zero(settings.connect_timeout, "--connect-timeout")?)
        .answer_timeout(not_zero(settings.answer_timeout, "--answer-timeout")?);
    for Route { of, upstream } in routes {
        let usage = |error: ifmatch_proxy::InvalidUpstream| Error::usage(error.to_string());
        let (requests, queue) = limits(settings, upstream.len(), max_requests)?;
        builder = builder.route(of, Upstream::parse(upstream).map_err(usage)?.limit(requests, queue)).map_err(usage)?;
    }
    match &settings.health_path {
        None => Ok(builder),
        Some(path) if path.starts_with('/') => Ok(builder.health_check(HealthCheck {
            path: path.clone(),
            interval: not_zero(settings.health_interval, "--health-interval")?,
            timeout: not_zero(settings.health_timeout, "--health-timeout")?,
            failures: at_least_one(settings.health_failures, "--health-failures")?,
            successes: at_least_one(settings.health_successes, "--health-successes")?,
        })),
        Some(path) => Err(Error::usage(format!("--health-path is {path:?}: it must begin with a slash"))),
    }
}

/// Returns the limits on concurrent and waiting requests of each upstream, so that a hanging upstream leaves slots to
/// the others.
fn limits(settings: &ProxySettings, servers: usize, max_requests: u32) -> Result<(u32, u32), Error> {
    let servers = u32::try_from(servers).unwrap_or(u32::MAX).max(1);
    let share = (max_requests / 2 / servers).max(1);
    let requests = settings.upstream_requests.or(Some(share));
    Ok((at_least_one(requests, "--upstream-requests")?, settings.upstream_queue.unwrap_or(max_requests / 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(toml: &str) -> String {
        ProxyConfig::from_settings(Settings::from_toml(toml).unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_for_storage_is_refused_by_name() {
        for (line, flag) in [
            ("data = 'd'", "--data"),
            ("store = 'memory://'", "--store"),
            ("require-conditions = true", "--require-conditions"),
            ("listen-tables = '127.0.0.1:1'", "--listen-tables"),
            ("accounts = [{ name = 'a', key = 'a2V5' }]", "--accounts"),
        ] {
            let error = error(&format!("{line}\n[proxy]\nupstream = ['http://a']"));
            assert!(error.starts_with(flag) && error.contains("ifmatch serve"), "{line}: {error}");
        }
    }

    #[test]
    fn one_upstream_does_not_take_all_places() {
        let settings = |toml: &str| Settings::from_toml(toml).unwrap().proxy;
        let unset = settings("");
        assert_eq!(limits(&unset, 1, 1_000).unwrap(), (500, 250));
        assert_eq!(limits(&unset, 4, 1_000).unwrap(), (125, 250));
        assert_eq!(limits(&unset, 4, 1).unwrap(), (1, 0));
        let set = settings("[proxy]\nupstream-requests = 7\nupstream-queue = 0");
        assert_eq!(limits(&set, 4, 1_000).unwrap(), (7, 0));
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (lines, part) in [
            ("", "--upstream"),
            ("upstream = ['a']", "'a' is no upstream"),
            ("upstream = ['http://a']\nhealth-path = 'up'", "--health-path"),
            ("upstream = ['http://a']\nanswer-timeout = '0s'", "--answer-timeout"),
            ("upstream = ['http://a']\nupstream-requests = 0", "--upstream-requests"),
            ("upstream = ['http://a']\nhealth-path = '/'\nhealth-failures = 0", "--health-failures"),
            ("route = ['a b=http://a']", "a b"),
            ("route = ['/a/../b=http://a']", "'/a/../b' is no route"),
        ] {
            let error = error(&format!("[proxy]\n{lines}"));
            assert!(error.contains(part), "{lines}: {error}");
        }
    }
}
