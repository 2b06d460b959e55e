//! The screens of the service, its leases, its conflicts and its cache.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Display;

use askama::Template;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use ifmatch_blob::leases::LeaseTarget;
use ifmatch_blob::name::InvalidName;
use ifmatch_gateway_config::endpoint_paths::{CACHE, CONFLICTS, LEASES, OVERVIEW};
use ifmatch_gateway_config::sources::InForce;
use ifmatch_runtime::{Clock, SystemClock};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::health::{self, HealthCard};
use super::history::CountSample;
use super::inside::RequestFailure;
use super::{OperatorVisit, PageAnswer, PageFrame, PageResult, page, render};
use crate::conflicts::{LosingClient, WorstPath, product};
use crate::endpoints::cache::{CacheCounters, HITS, LookedUp, MAX_URLS, MISSES, StoreRefusal};
use crate::endpoints::conflicts::{ConflictGroup, FoundConflicts};
use crate::endpoints::overview::Overview;
use crate::metrics::seconds;
use crate::text::{self, Text, decoded, encode, encode_path};

/// Number of clients that the page of conflicts shows at once.
const FIRST_CLIENTS: usize = 10;
/// Number of paths that the page of conflicts shows at once.
const FIRST_PATHS: usize = 5;
/// Number of the latest conflicts that the page shows at once.
const FIRST_GROUPS: usize = 20;
/// Maximum length of each list of the page of conflicts.
const MOST_CONFLICTS: usize = 100;
/// Maximum number of leases of a page.
const MOST_LEASES: usize = 1_000;

/// The page of the service.
#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: PageFrame,
    state: Overview,
    cards: Vec<HealthCard>,
    /// The counts of the last ten minutes.
    lately: CountSample,
    /// The number of seconds that they are of.
    seconds: f64,
    /// The plot of the requests per second, and the highest rate.
    line: String,
    highest: f64,
    /// The plot of the conflicts per minute, and the most of a minute.
    conflicts: String,
    most_conflicts: f64,
}

impl OverviewPage {
    /// Returns a rate per second of the last ten minutes.
    fn rate(&self, count: impl Borrow<f64>) -> String {
        text::number(if self.seconds > 0.0 {
            count.borrow() / self.seconds
        } else {
            0.0
        })
    }

    /// Returns the client errors that aren't conflicts.
    fn other_errors(&self) -> f64 {
        (self.lately.client_errors - self.lately.conflicts).max(0.0)
    }

    /// Returns the settings that were set, or those that weren't.
    fn settings(&self, are_set: bool) -> impl Iterator<Item = &InForce> {
        self.state
            .settings
            .iter()
            .filter(move |setting| (setting.source.0 != "default") == are_set)
    }
}

/// The page of the conflicts.
#[derive(Template)]
#[template(path = "conflicts.html")]
struct ConflictsPage {
    frame: PageFrame,
    path: Text,
    /// The address and the program of the client whose conflicts are shown.
    client: Option<(Text, Text)>,
    now: f64,
    found: FoundConflicts,
    /// The leases on the paths that a lease kept from change, by path.
    leases: BTreeMap<Text, ShownLease>,
}

impl ConflictsPage {
    /// Returns the lease that a path has, if it still has one.
    fn lease(&self, path: &Text) -> Option<&ShownLease> {
        self.leases.get(path).filter(|lease| lease.is_locked())
    }

    /// Returns the clients that are shown, and those that a click shows.
    fn clients(&self) -> (&[LosingClient], &[LosingClient]) {
        self.found
            .clients
            .split_at(self.found.clients.len().min(FIRST_CLIENTS))
    }

    /// Returns the worst paths that are shown, and those that a click shows.
    fn worst(&self) -> (&[WorstPath], &[WorstPath]) {
        self.found
            .worst
            .split_at(self.found.worst.len().min(FIRST_PATHS))
    }

    /// Returns the latest conflicts that are shown, and those that a click shows.
    fn latest(&self) -> (&[ConflictGroup], &[ConflictGroup]) {
        self.found
            .groups
            .split_at(self.found.groups.len().min(FIRST_GROUPS))
    }

    /// Returns the blob with this path, if the path can name a blob here.
    fn blob(&self, path: &Text) -> Option<Text> {
        let path = decoded(path.0.trim_start_matches('/'));
        let is_blob = LeaseTarget::new(&path.0).is_ok_and(|target| target.blob.is_some());
        (self.frame.has_blobs && is_blob).then_some(path)
    }

    /// Returns the other clients with a client's product.
    fn namesakes<'a>(
        &'a self,
        client: &'a str,
        agent: Option<&'a Text>,
    ) -> impl Iterator<Item = &'a LosingClient> {
        let product = agent.map(product);
        self.found.clients.iter().filter(move |other| {
            other.product == product
                && (other.user_agent.as_ref() != agent || other.client.to_string() != client)
        })
    }

    /// Returns the product of a client, or the whole name of its program if another one at its address has the same product.
    fn program(&self, client: &impl Display, agent: Option<&Text>) -> Text {
        let Some(name) = agent else {
            return "no User-Agent".into();
        };
        let client = client.to_string();
        let mut namesakes = self.namesakes(&client, agent);
        if namesakes.any(|other| other.client.to_string() == client) {
            name.clone()
        } else {
            product(name)
        }
    }

    /// Returns the program of a client, with its address if another one at another address has the same product.
    fn name(&self, loser: &LosingClient) -> Text {
        let program = self.program(&loser.client, loser.user_agent.as_ref());
        let client = loser.client.to_string();
        let mut namesakes = self.namesakes(&client, loser.user_agent.as_ref());
        if namesakes.any(|other| other.client != loser.client) {
            Text(format!("{program} at {client}"))
        } else {
            program
        }
    }

    /// Returns `true` for the path whose conflicts are shown.
    fn is_shown_path(&self, worst: &WorstPath) -> bool {
        self.path == worst.path || self.path == decoded(&worst.path.0)
    }

    /// Returns `true` for the client whose conflicts are shown.
    fn is_shown(&self, loser: &LosingClient) -> bool {
        let agent = loser.user_agent.clone().unwrap_or_default();
        self.client
            .as_ref()
            .is_some_and(|(client, shown)| client.0 == loser.client.to_string() && *shown == agent)
    }

    /// Returns the query that selects a client's conflicts, on the path that is shown.
    fn of_client(&self, loser: &LosingClient) -> String {
        let agent = loser.user_agent.clone().unwrap_or_default();
        format!(
            "client={}&user_agent={}{}",
            encode(&loser.client.to_string()),
            agent.query(),
            self.of_path("&")
        )
    }

    /// Returns the parameter with the path that is shown.
    fn of_path(&self, separator: &str) -> String {
        if self.path.0.is_empty() {
            String::new()
        } else {
            format!("{separator}path={}", self.path.query())
        }
    }

    /// Returns the parameters with the client whose conflicts are shown.
    fn of_shown_client(&self) -> String {
        let query = |(client, agent): &(Text, Text)| {
            format!("&client={}&user_agent={}", client.query(), agent.query())
        };
        self.client.as_ref().map(query).unwrap_or_default()
    }

    /// Returns what the list of the latest conflicts is limited to, such as " from terraform/1.9.8 on /docs/plan".
    fn shown(&self) -> Text {
        let client = self.client.as_ref().map(|(client, agent)| {
            let agent = Some(agent).filter(|agent| !agent.0.is_empty());
            format!(" from {} at {client}", self.program(&client.0, agent))
        });
        let path = if self.path.0.is_empty() {
            String::new()
        } else {
            format!(" on {}", self.path)
        };
        Text(client.unwrap_or_default() + &path)
    }
}

/// The page of the leases.
#[derive(Template)]
#[template(path = "leases.html")]
struct LeasesPage {
    frame: PageFrame,
    prefix: Text,
    now: f64,
    listed: LeaseList,
    /// How many leases that no longer lock are hidden.
    hidden: usize,
    is_all: bool,
}

impl LeasesPage {
    /// Returns `true` if a holder is listed that hasn't named itself.
    fn has_unnamed(&self) -> bool {
        let mut leases = self.listed.leases.iter();
        leases.any(|lease| lease.is_locked() && lease.holder.is_none())
    }
}

/// A page of the listing of leases.
#[derive(Deserialize)]
struct LeaseList {
    leases: Vec<ShownLease>,
    next: Option<Text>,
}

/// A lease, as `/-/leases` describes it.
#[derive(Deserialize)]
struct ShownLease {
    path: Text,
    state: Text,
    /// When it stops locking, in seconds since 1970.
    ends: Option<f64>,
    token: Option<u64>,
    holder: Option<Text>,
    waiting: Vec<WaitingClient>,
}

impl ShownLease {
    /// Returns `true` if the lease keeps others from changes.
    fn is_locked(&self) -> bool {
        is_locked(&self.state)
    }

    /// Returns what this lease says about its holder, within a sentence.
    fn name(&self) -> Text {
        self.holder
            .clone()
            .unwrap_or_else(|| "an unnamed holder".into())
    }

    /// Returns how often others were refused.
    fn refusals(&self) -> u32 {
        self.waiting.iter().map(|waiting| waiting.count).sum()
    }
}

/// A client that a lease has kept from its work.
#[derive(Deserialize)]
struct WaitingClient {
    client: Text,
    user_agent: Option<Text>,
    /// How often it was refused.
    count: u32,
    /// When it was last refused, in seconds since 1970.
    last: f64,
}

/// The page that asks whether to break a lease.
#[derive(Template)]
#[template(path = "break.html")]
struct BreakPage {
    frame: PageFrame,
    lease: ShownLease,
    now: f64,
    period: Text,
    problem: Option<Text>,
}

/// The page of the cache.
#[derive(Template)]
#[template(path = "cache.html")]
struct CachePage {
    frame: PageFrame,
    url: Text,
    found: Option<LookedUp>,
    /// The URLs with the path that was entered without a host.
    urls: Vec<Text>,
    counters: CacheCounters,
    /// The counts of the last ten minutes.
    lately: CountSample,
    /// The plot of the share of hits.
    line: String,
    /// The purge that was refused, and why.
    refused: Option<RefusedPurge>,
}

/// The URLs with a path.
#[derive(Default, Deserialize)]
struct UrlList {
    urls: Vec<Text>,
}

/// A purge that was refused, as it was entered.
struct RefusedPurge {
    what: String,
    value: String,
    origin: String,
    problem: Text,
}

impl CachePage {
    /// Returns what the refused purge has in a field.
    fn kept(&self, field: &str) -> &str {
        match (&self.refused, field) {
            (Some(refused), "value") => &refused.value,
            (Some(refused), "origin") => &refused.origin,
            _ => "",
        }
    }

    /// Returns `true` for the kind of the refused purge.
    fn is_kept(&self, what: &str) -> bool {
        self.refused
            .as_ref()
            .is_some_and(|refused| refused.what == what)
    }

    /// Returns how many responses are stored for the URL.
    fn stored(&self) -> String {
        let count = self.found.as_ref().map_or(0, |found| found.stored.len());
        text::counted(count as u64, "response")
    }

    /// Returns the hits and the other requests since the start.
    fn hits(&self) -> (u64, u64) {
        let all = self.counters.requests.iter();
        let of = |outcomes: &[&str]| {
            all.clone()
                .filter(|(name, _)| outcomes.contains(&&*name.0))
                .flat_map(|(_, reasons)| reasons.values())
                .sum()
        };
        (of(&HITS), of(&MISSES))
    }
}

impl StoreRefusal {
    /// Returns the reason in words, and what to do.
    fn words(&self) -> &'static str {
        match (&*self.outcome.0, &*self.reason.0) {
            (_, "no-store") => "the response, or the request, says no-store",
            (_, "private") => "the response says private, so it's for one client only",
            (_, "authorization") => {
                "the request has Authorization, and the response does not permit sharing (public, s-maxage)"
            }
            (_, "credential") => {
                "the request has a credential, such as a cookie, and the response is not public"
            }
            (_, "cookie") => "the response sets a cookie, and is not public",
            (_, "vary") => {
                "Vary names * or a field that the proxy overwrites, so no other request can match"
            }
            ("error", _) => "the upstream responded with a server error",
            (_, "status") => {
                "the status of the response is not cacheable without a stated lifetime"
            }
            (_, "lifetime") => {
                "the response has neither a lifetime (Cache-Control, Expires) nor a validator (ETag, Last-Modified)"
            }
            (_, "too-large") => {
                "the response is larger than the cache permits (see --cache-body-size)"
            }
            (_, "malformed") => "the length or the range of the response is malformed",
            (_, "invalidated") => "the resource was changed or purged while the response arrived",
            _ => "the response can't be stored",
        }
    }
}

impl OperatorVisit<'_> {
    /// Shows the state of the service.
    pub(super) async fn overview(&self) -> PageResult {
        let state: Overview = self.inside.json(OVERVIEW).await?;
        let (line, highest) = self.console.history.requests();
        let (conflicts, most_conflicts) = self.console.history.conflicts();
        let (lately, seconds) = self.console.history.lately();
        let cards = health::cards(&state);
        page(&OverviewPage {
            frame: self.frame("overview"),
            state,
            cards,
            lately,
            seconds,
            line,
            highest,
            conflicts,
            most_conflicts,
        })
    }

    /// Shows who loses, and why.
    pub(super) async fn conflicts(&self) -> PageResult {
        let path = Text(self.form.get("path").to_owned());
        let of_path = if path.0.is_empty() {
            String::new()
        } else {
            format!("&path={}", path.query())
        };
        let client = Some(self.form.get("client")).filter(|client| !client.is_empty());
        let client =
            client.map(|client| (Text::from(client), Text::from(self.form.get("user_agent"))));
        let of_client = client.as_ref().map(|(client, agent)| {
            format!("&client={}&user_agent={}", client.query(), agent.query())
        });
        let target = format!(
            "{CONFLICTS}?limit={MOST_CONFLICTS}{of_path}{}",
            of_client.unwrap_or_default()
        );
        let found: FoundConflicts = self.inside.json(&target).await?;
        let mut leases = BTreeMap::new();
        for group in found.groups.iter().filter(|group| group.latest.by_lease) {
            let path = &group.latest.path;
            if !leases.contains_key(path) {
                let target = lease_target(decoded(path.0.trim_start_matches('/')).0.as_str());
                // The Azure dialect has other paths, and the blob may be gone.
                if let Ok(target) = target
                    && let Ok(lease) = self.inside.json(&target).await
                {
                    leases.insert(path.clone(), lease);
                }
            }
        }
        page(&ConflictsPage {
            frame: self.frame("conflicts"),
            path,
            client,
            now: now(),
            found,
            leases,
        })
    }

    /// Lists leases, the ones first that keep most clients waiting.
    pub(super) async fn leases(&self) -> PageResult {
        // The page of conflicts shows paths with a slash.
        let prefix = Text(self.form.get("prefix").trim_start_matches('/').to_owned());
        let after = self.form.get("after");
        let after = if after.is_empty() {
            String::new()
        } else {
            format!("&after={}", encode(after))
        };
        let listed = format!(
            "{LEASES}?limit={MOST_LEASES}&prefix={}{after}",
            prefix.query()
        );
        let mut listed: LeaseList = self.inside.json(&listed).await?;
        let is_all = self.form.get("expired") == "shown";
        let count = listed.leases.len();
        listed.leases.retain(|lease| is_all || lease.is_locked());
        for lease in &mut listed.leases {
            lease.waiting.sort_by_key(|waiting| Reverse(waiting.count));
        }
        listed
            .leases
            .sort_by_key(|lease| Reverse((lease.waiting.len(), lease.refusals())));
        let hidden = count - listed.leases.len();
        page(&LeasesPage {
            frame: self.frame("leases"),
            prefix,
            now: now(),
            listed,
            hidden,
            is_all,
        })
    }

    /// Names the holder of a lease, and asks whether to break it.
    pub(super) async fn ask_to_break(&self) -> PageResult {
        page(&self.break_page(None).await?)
    }

    /// Returns the page that asks whether to break a lease, with the reason why that failed before.
    async fn break_page(&self, problem: Option<Text>) -> Result<BreakPage, RequestFailure> {
        let lease: ShownLease = self
            .inside
            .json(&lease_target(self.form.get("path"))?)
            .await?;
        let period = Some(self.form.get("period"))
            .filter(|period| !period.is_empty())
            .unwrap_or("0")
            .into();
        Ok(BreakPage {
            frame: self.frame("leases"),
            lease,
            now: now(),
            period,
            problem,
        })
    }

    /// Breaks the lease that was shown, and no later one.
    pub(super) async fn break_lease(&self) -> PageResult {
        match self.try_to_break().await {
            Err(failure)
                if failure.status.is_client_error()
                    && failure.status != StatusCode::UNAUTHORIZED =>
            {
                match self.break_page(Some(Text(failure.detail.clone()))).await {
                    Ok(asked) => Ok(PageAnswer::Page(failure.status, render(&asked)?)),
                    Err(_) => Err(failure),
                }
            }
            broken => broken,
        }
    }

    /// Breaks the lease that was shown, unless the form or the gateway forbids it.
    async fn try_to_break(&self) -> PageResult {
        let number = |name: &str| {
            let wrong = |_| {
                RequestFailure::new(
                    StatusCode::BAD_REQUEST,
                    format!("The {name} must be a number."),
                )
            };
            self.form.get(name).parse::<u64>().map_err(wrong)
        };
        let command =
            json!({ "action": "break", "period": number("period")?, "token": number("token")? });
        let media_type = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let target = lease_target(self.form.get("path"))?;
        self.inside
            .whole(
                Method::POST,
                &target,
                &media_type,
                command.to_string().into(),
            )
            .await?;
        let path = self.form.get("path");
        Ok(PageAnswer::Redirect(format!(
            "/leases?done=broken&path={}&proof={}",
            encode(path),
            self.proof(path)
        )))
    }

    /// Shows the cache, and what it has for a URL.
    pub(super) async fn cache(&self) -> PageResult {
        page(&self.cache_page(self.form.get("url").trim(), None).await?)
    }

    /// Returns the page of the cache, with what it has for a URL, and a purge that was refused.
    async fn cache_page(
        &self,
        url: &str,
        refused: Option<RefusedPurge>,
    ) -> Result<CachePage, RequestFailure> {
        let mut urls = UrlList::default();
        if url.starts_with('/') {
            urls = self
                .inside
                .json(&format!("{CACHE}?path={}", encode(url)))
                .await?;
        }
        // One host is enough of an answer.
        let (urls, asked) = (urls.urls, url);
        let url = if let [only] = &urls[..] {
            only.0.as_str()
        } else {
            url
        };
        let is_whole = Url::parse(url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let found = if is_whole {
            Some(
                self.inside
                    .json(&format!("{CACHE}?url={}", encode(url)))
                    .await?,
            )
        } else {
            None
        };
        let counters = self.inside.json(CACHE).await?;
        let (line, (lately, _)) = (self.console.history.hits(), self.console.history.lately());
        let url = if found.is_some() { url } else { asked };
        Ok(CachePage {
            frame: self.frame("cache"),
            url: url.into(),
            found,
            urls: urls.clone(),
            counters,
            lately,
            line,
            refused,
        })
    }

    /// Purges responses.
    pub(super) async fn purge(&self) -> PageResult {
        match self.try_to_purge().await {
            Err(failure) if failure.status == StatusCode::BAD_REQUEST => {
                let field = |name: &str| self.form.get(name).to_owned();
                let (what, value, origin) = (field("what"), field("value"), field("origin"));
                let refused = RefusedPurge {
                    what,
                    value,
                    origin,
                    problem: Text(failure.detail.clone()),
                };
                match self.cache_page("", Some(refused)).await {
                    Ok(cache) => Ok(PageAnswer::Page(failure.status, render(&cache)?)),
                    Err(_) => Err(failure),
                }
            }
            purged => purged,
        }
    }

    /// Purges responses, unless the form or the gateway forbids it.
    async fn try_to_purge(&self) -> PageResult {
        let value = self.form.get("value").trim();
        let what = match self.form.get("what") {
            "group" => format!(
                "group={}&origin={}",
                encode(value),
                encode(self.form.get("origin").trim())
            ),
            what @ ("url" | "prefix") if !value.is_empty() => format!("{what}={}", encode(value)),
            _ => {
                return Err(RequestFailure::new(
                    StatusCode::BAD_REQUEST,
                    "Enter the URL, prefix or group to purge.",
                ));
            }
        };
        let soft = if self.form.get("soft") == "true" {
            "&soft=true"
        } else {
            ""
        };
        let purged = self
            .inside
            .whole(
                Method::DELETE,
                &format!("{CACHE}?{what}{soft}"),
                &[],
                Bytes::new(),
            )
            .await?;
        let purged: serde_json::Value = serde_json::from_slice(&purged.body).unwrap_or_default();
        let count = purged["purged"]
            .as_u64()
            .map(|count| format!("&count={count}"))
            .unwrap_or_default();
        let url = if self.form.get("what") == "url" {
            format!("&url={}", encode(value))
        } else {
            String::new()
        };
        Ok(PageAnswer::Redirect(format!(
            "/cache?done=purged{count}{url}"
        )))
    }
}

/// Returns the endpoint for the lease of a container or a blob.
pub(super) fn lease_target(path: &str) -> Result<String, RequestFailure> {
    let invalid = |error: InvalidName| {
        RequestFailure::new(
            StatusCode::BAD_REQUEST,
            format!("No lease can have this path: {error}"),
        )
    };
    LeaseTarget::new(path).map_err(invalid)?;
    Ok(format!("{LEASES}/{}", encode_path(path)))
}

/// Returns `true` if a lease in this state keeps others from changes.
pub(super) fn is_locked(state: &Text) -> bool {
    matches!(&*state.0, "leased" | "breaking")
}

/// Returns the time of day, in seconds since 1970.
pub(super) fn now() -> f64 {
    seconds(SystemClock.wall())
}
