//! The screens of the service, its leases, its conflicts and its cache.

use askama::Template;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use ifmatch_blob::name::InvalidName;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::inside::Failure;
use super::text::{self, Text, encode, encode_path};
use super::{Answer, Frame, Visit, page};
use crate::endpoints::cache::{Counters, LookedUp, Refusal};
use crate::endpoints::conflicts::Found;
use crate::endpoints::overview::Overview;
use crate::leases::listing::LeaseTarget;

type Result = std::result::Result<Answer, Failure>;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    state: Overview,
    line: String,
    highest: f64,
}

#[derive(Template)]
#[template(path = "conflicts.html")]
struct Conflicts {
    frame: Frame,
    path: Text,
    now: f64,
    found: Found,
}

#[derive(Template)]
#[template(path = "leases.html")]
struct Leases {
    frame: Frame,
    prefix: Text,
    now: f64,
    listed: Listed,
}

#[derive(Deserialize)]
struct Listed {
    leases: Vec<Lease>,
    next: Option<Text>,
}

/// `/-/leases/…`.
#[derive(Deserialize)]
struct Lease {
    path: Text,
    state: Text,
    infinite: bool,
    remaining: Option<u64>,
    ends: Option<f64>,
    token: Option<u64>,
    holder: Option<Text>,
    waiting: Vec<Waiting>,
}

#[derive(Deserialize)]
struct Waiting {
    client: Text,
    user_agent: Option<Text>,
    count: u32,
    last: f64,
}

#[derive(Template)]
#[template(path = "break.html")]
struct Break {
    frame: Frame,
    lease: Lease,
}

#[derive(Template)]
#[template(path = "cache.html")]
struct Cache {
    frame: Frame,
    url: Text,
    found: Option<LookedUp>,
    counters: Counters,
    line: String,
}

impl Refusal {
    /// Returns the reason in words, and what to do.
    fn words(&self) -> &'static str {
        match (&*self.outcome.0, &*self.reason.0) {
            (_, "no-store") => "the response, or the request, says no-store",
            (_, "private") => "the response says private: it is for one client only",
            (_, "authorization") => {
                "the request has Authorization, and the response does not permit sharing (public, s-maxage)"
            }
            (_, "credential") => "the request has a credential, such as a cookie, and the response is not public",
            (_, "cookie") => "the response sets a cookie, and is not public",
            (_, "vary") => "Vary names * or a field that the proxy overwrites, so no other request can match",
            ("error", _) => "the upstream answered with a server error",
            (_, "status") => "the status of the response is not cacheable without a stated lifetime",
            (_, "lifetime") => {
                "the response has neither a lifetime (Cache-Control, Expires) nor a validator (ETag, Last-Modified)"
            }
            (_, "too-large") => "the response is larger than the cache permits: see --cache-body-size",
            (_, "malformed") => "the length or the range of the response is malformed",
            (_, "invalidated") => "the resource was changed or purged while the response arrived",
            _ => "the response may not be stored",
        }
    }
}

impl Visit<'_> {
    /// Shows the state of the service.
    pub(super) async fn overview(&self) -> Result {
        let state: Overview = self.inside.json("/-/overview").await?;
        let (line, highest) = self.console.history.requests();
        page(&OverviewPage { frame: self.frame("overview"), state, line, highest })
    }

    /// Shows who loses, and why.
    pub(super) async fn conflicts(&self) -> Result {
        let path = Text(self.form.get("path").to_owned());
        let of_path = if path.0.is_empty() { String::new() } else { format!("&path={}", path.query()) };
        let found: Found = self.inside.json(&format!("/-/conflicts?limit=100{of_path}")).await?;
        page(&Conflicts { frame: self.frame("conflicts"), path, now: now(), found })
    }

    /// Lists leases.
    pub(super) async fn leases(&self) -> Result {
        let prefix = Text(self.form.get("prefix").to_owned());
        let after = self.form.get("after");
        let after = if after.is_empty() { String::new() } else { format!("&after={}", encode(after)) };
        let listed = format!("/-/leases?limit=200&prefix={}{after}", prefix.query());
        let listed: Listed = self.inside.json(&listed).await?;
        page(&Leases { frame: self.frame("leases"), prefix, now: now(), listed })
    }

    /// Names the holder of a lease, and asks if it is to be broken.
    pub(super) async fn ask_to_break(&self) -> Result {
        let lease: Lease = self.inside.json(&lease_target(self.form.get("path"))?).await?;
        page(&Break { frame: self.frame("leases"), lease })
    }

    /// Breaks the lease that was shown, and no later one.
    pub(super) async fn break_lease(&self) -> Result {
        let number = |name: &str| {
            let wrong = |_| Failure::new(StatusCode::BAD_REQUEST, format!("the {name} must be a number"));
            self.form.get(name).parse::<u64>().map_err(wrong)
        };
        let command = json!({ "action": "break", "period": number("period")?, "token": number("token")? });
        let media_type = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let target = lease_target(self.form.get("path"))?;
        self.inside.whole(Method::POST, &target, &media_type, command.to_string().into()).await?;
        Ok(Answer::Redirect("/leases?done=broken".to_owned()))
    }

    /// Shows the cache, and what it has for a URL.
    pub(super) async fn cache(&self) -> Result {
        let url = Text(self.form.get("url").trim().to_owned());
        let is_whole = Url::parse(&url.0).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let found =
            if is_whole { Some(self.inside.json(&format!("/-/cache?url={}", url.query())).await?) } else { None };
        let counters = self.inside.json("/-/cache").await?;
        let line = self.console.history.hits();
        page(&Cache { frame: self.frame("cache"), url, found, counters, line })
    }

    /// Purges responses.
    pub(super) async fn purge(&self) -> Result {
        let value = self.form.get("value").trim();
        let what = match self.form.get("what") {
            "group" => format!("group={}&origin={}", encode(value), encode(self.form.get("origin").trim())),
            what @ ("url" | "prefix") if !value.is_empty() => format!("{what}={}", encode(value)),
            _ => return Err(Failure::new(StatusCode::BAD_REQUEST, "enter the URL, the prefix or the group to purge")),
        };
        let soft = if self.form.get("soft") == "true" { "&soft=true" } else { "" };
        let purged = self.inside.whole(Method::DELETE, &format!("/-/cache?{what}{soft}"), &[], Bytes::new()).await?;
        let purged: serde_json::Value = serde_json::from_slice(&purged.body).unwrap_or_default();
        let done = if purged["purged"] == 0 { "nothing" } else { "purged" };
        let url = if self.form.get("what") == "url" { format!("&url={}", encode(value)) } else { String::new() };
        Ok(Answer::Redirect(format!("/cache?done={done}{url}")))
    }
}

/// Returns the endpoint for the lease of a container or a blob.
fn lease_target(path: &str) -> std::result::Result<String, Failure> {
    let invalid = |error: InvalidName| Failure::new(StatusCode::BAD_REQUEST, format!("the path to break: {error}"));
    LeaseTarget::new(path).map_err(invalid)?;
    Ok(format!("/-/leases/{}", encode_path(path)))
}

fn now() -> f64 {
    use ifmatch_runtime::{Clock, SystemClock};
    crate::conflicts::seconds(SystemClock.wall())
}
