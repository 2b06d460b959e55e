//! `/-/cache`: counters of the cache, and purging.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use ifmatch_cache::{CacheHandle, Invalidation, NotStored, Outcome, Purge};
use ifmatch_core::problem::Problem;
use ifmatch_gateway_config::text::Text;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::form_urlencoded;

use super::{answer_json, not_allowed};
use crate::purges::{PurgeOrder, Purges};

/// The counters of a cache.
#[derive(Serialize, Deserialize)]
pub(crate) struct CacheCounters {
    /// By outcome and reason.
    pub(crate) requests: BTreeMap<Text, BTreeMap<Text, u64>>,
    confirmed: u64,
    stored: u64,
    /// By reason.
    not_stored: BTreeMap<Text, u64>,
    /// By cause.
    invalidated: BTreeMap<Text, u64>,
    pub(crate) evictions: u64,
    /// Bytes of bodies served from the cache.
    bytes: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) disk_bytes: u64,
}

/// Maximum number of URLs that a look-up by path returns.
pub(crate) const MAX_URLS: usize = 20;

/// What a cache has stored for a URL.
#[derive(Serialize, Deserialize)]
pub(crate) struct LookedUp {
    url: Text,
    pub(crate) stored: Vec<StoredEntry>,
    pub(crate) on_disk: bool,
    pub(crate) not_stored: Option<StoreRefusal>,
}

/// A stored response. Times are in seconds.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredEntry {
    pub(crate) status: u16,
    pub(crate) fresh: bool,
    pub(crate) age: u64,
    pub(crate) lifetime: u64,
    pub(crate) tag: Option<Text>,
    /// The request fields that select it, with their values.
    pub(crate) vary: BTreeMap<Text, Option<Text>>,
    pub(crate) groups: Vec<Text>,
    pub(crate) size: u64,
}

/// Why the last response wasn't stored.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoreRefusal {
    pub(crate) outcome: Text,
    pub(crate) reason: Text,
}

/// Returns the counters for `GET /-/cache`, and what is stored for a URL for `GET /-/cache?url=…`. Purges stored responses for
/// `DELETE /-/cache?url=…`, `?prefix=…` or `?group=…&origin=…`, or with `soft=true` makes them stale.
///
/// # Errors
/// If the request is malformed, or the purge may not hold on other proxies.
pub(super) async fn respond(
    cache: &CacheHandle,
    others: &Purges,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response<Bytes>, Problem> {
    match *method {
        Method::GET | Method::HEAD => look_up(cache, uri.query().unwrap_or_default()),
        Method::DELETE => match parse_purges(uri.query().unwrap_or_default()) {
            Some((order, is_local)) => {
                if let Some(wrong) = order.purges.iter().find_map(Purge::not_a_url) {
                    return Err(not_a_url(wrong));
                }
                if is_local {
                    Ok(purged(order.run(cache)))
                } else {
                    purge(cache, others, order, headers).await
                }
            }
            None => Err(Problem::bad_request(
                "add ?url=…, ?prefix=… or ?group=…&origin=… to select the responses to purge, and soft=true for a soft purge",
            )),
        },
        _ => Err(not_allowed(
            "GET, HEAD, DELETE",
            "GET shows the cache. DELETE ?prefix=… purges it",
        )),
    }
}

/// Purges this cache, then other proxies'.
async fn purge(
    cache: &CacheHandle,
    others: &Purges,
    order: PurgeOrder,
    headers: &HeaderMap,
) -> Result<Response<Bytes>, Problem> {
    let count = order.run(cache);
    others.spread(order, headers).await?;
    Ok(purged(count))
}

/// Returns 400 for a text that can't be the URL of a response.
fn not_a_url(text: &str) -> Problem {
    Problem::bad_request(format!(
        "'{text}' is not a URL. Write it with the scheme and host that clients use, such as \
         https://shop.example/products/"
    ))
}

/// Returns the response to a purge of this number of URLs.
fn purged(count: usize) -> Response<Bytes> {
    answer_json(StatusCode::OK, &json!({ "purged": count }))
}

/// Returns `true` for `PURGE`, the method of Varnish and its successors.
pub(super) fn is_purge(method: &Method) -> bool {
    method.as_str() == "PURGE"
}

/// Purges the target of a request.
///
/// # Errors
/// If the request is malformed, or the purge may not hold on other proxies.
pub(super) async fn purge_target<B>(
    cache: &CacheHandle,
    others: &Purges,
    request: Request<B>,
) -> Result<Response<Bytes>, Problem> {
    let head = request.into_parts().0;
    let url = cache
        .url(&head)
        .ok_or_else(|| Problem::bad_request("send one Host header, not none or several"))?;
    let order = PurgeOrder {
        purges: vec![Purge::Url(url)],
        soft: false,
    };
    purge(cache, others, order, &head.headers).await
}

/// Returns what is stored for the URL of a query, or the counters if there is no query.
fn look_up(cache: &CacheHandle, query: &str) -> Result<Response<Bytes>, Problem> {
    let mut fields = form_urlencoded::parse(query.as_bytes());
    let url = match (fields.next(), fields.next()) {
        (None, _) => return Ok(counters(cache)),
        (Some((name, path)), None) if name == "path" => {
            return Ok(answer_json(
                StatusCode::OK,
                &json!({ "urls": cache.urls_at(&path, MAX_URLS) }),
            ));
        }
        (Some((name, url)), None) if name == "url" => url,
        _ => {
            return Err(Problem::bad_request(
                "add ?url=… to look up a URL, ?path=… to find the URLs with a path, or nothing for the counters",
            ));
        }
    };
    if Purge::Url(url.clone().into_owned()).not_a_url().is_some() {
        return Err(not_a_url(&url));
    }
    let found = cache.look_up(&url);
    let stored = found.variants.into_iter().map(|variant| StoredEntry {
        status: variant.status.as_u16(),
        fresh: variant.is_fresh,
        age: variant.age.as_secs(),
        lifetime: variant.lifetime.as_secs(),
        tag: variant.tag.map(Text),
        vary: variant
            .vary
            .into_iter()
            .map(|(name, value)| (Text(name), value.map(Text)))
            .collect(),
        groups: variant.groups.into_iter().map(Text).collect(),
        size: variant.size,
    });
    let found = LookedUp {
        url: Text(url.into_owned()),
        stored: stored.collect(),
        on_disk: found.is_on_disk,
        not_stored: found.not_stored.map(|why| StoreRefusal {
            outcome: why.name().into(),
            reason: why.reason().into(),
        }),
    };
    Ok(answer_json(StatusCode::OK, &found))
}

/// Responds with the counters.
fn counters(cache: &CacheHandle) -> Response<Bytes> {
    let metrics = cache.metrics();
    let mut requests = BTreeMap::<Text, BTreeMap<Text, u64>>::new();
    for outcome in Outcome::ALL {
        let reasons = requests.entry(outcome.name().into()).or_default();
        reasons.insert(outcome.reason().into(), metrics.count(outcome));
    }
    let not_stored =
        NotStored::ALL.map(|reason| (reason.reason().into(), metrics.not_stored(reason)));
    let causes = Invalidation::ALL.map(|cause| (cause.cause().into(), metrics.invalidated(cause)));
    let counters = CacheCounters {
        requests,
        confirmed: metrics.confirmed,
        stored: metrics.stored,
        not_stored: not_stored.into(),
        invalidated: causes.into(),
        evictions: metrics.evictions,
        bytes: metrics.bytes,
        stored_bytes: metrics.stored_bytes,
        disk_bytes: metrics.disk_bytes,
    };
    answer_json(StatusCode::OK, &counters)
}

/// The outcomes of requests that the cache answered.
pub(crate) const HITS: [&str; 3] = ["hit", "stale", "revalidated"];
/// The outcomes of those that it didn't.
pub(crate) const MISSES: [&str; 3] = ["miss", "pass", "error"];

/// Returns the number of requests with one of these outcomes.
pub(crate) fn count_of(metrics: &ifmatch_cache::Metrics, outcomes: &[&str]) -> u64 {
    let is_one = |outcome: &Outcome| outcomes.contains(&outcome.name());
    Outcome::ALL
        .into_iter()
        .filter(is_one)
        .map(|outcome| metrics.count(outcome))
        .sum()
}

/// Parses a query into a purge, and `true` if it is for this proxy alone. An empty prefix purges everything, and must be explicit. `group`
/// may be repeated.
fn parse_purges(query: &str) -> Option<(PurgeOrder, bool)> {
    let mut fields: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    fields.sort();
    let mut flag = |flag: &str| -> Option<bool> {
        let values: Vec<_> = fields
            .extract_if(.., |(name, _)| name == flag)
            .map(|(_, value)| value)
            .collect();
        match &values[..] {
            [] => Some(false),
            [value] => value.parse().ok(),
            [..] => None,
        }
    };
    let (soft, local) = (flag("soft")?, flag("local")?);
    let purges = match &mut fields[..] {
        [(name, value)] if name == "url" => Some(vec![Purge::Url(std::mem::take(value))]),
        [(name, value)] if name == "prefix" => Some(vec![Purge::Prefix(std::mem::take(value))]),
        [groups @ .., (name, origin)] if name == "origin" && !groups.is_empty() => {
            let purge = |(field, name): &(String, String)| {
                (field == "group").then(|| Purge::Group {
                    origin: origin.clone(),
                    name: name.clone(),
                })
            };
            groups.iter().map(purge).collect()
        }
        _ => None,
    };
    Some((
        PurgeOrder {
            purges: purges?,
            soft,
        },
        local,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_gets_an_order_in_one_query() {
        for sent in [
            "soft=true&url=http%3A%2F%2Fa%2Fb",
            "prefix=",
            "origin=http://a&group=x&group=y+%26",
        ] {
            let (order, local) = parse_purges(sent).unwrap();
            let query = form_urlencoded::Serializer::new(String::new())
                .extend_pairs(crate::purges::query(&order))
                .finish();
            assert_eq!((local, parse_purges(&query)), (false, Some((order, true))));
        }
    }

    #[test]
    fn a_purge_needs_an_explicit_selection() {
        let hard = |purges| {
            Some((
                PurgeOrder {
                    purges,
                    soft: false,
                },
                false,
            ))
        };
        assert_eq!(
            parse_purges("url=http%3A%2F%2Fa%2Fb"),
            hard(vec![Purge::Url("http://a/b".into())])
        );
        assert_eq!(
            parse_purges("prefix="),
            hard(vec![Purge::Prefix(String::new())])
        );
        let group = |name: &str| Purge::Group {
            origin: "http://a".into(),
            name: name.into(),
        };
        assert_eq!(
            parse_purges("origin=http://a&group=x"),
            hard(vec![group("x")])
        );
        assert_eq!(
            parse_purges("group=y&origin=http://a&group=x"),
            hard(vec![group("x"), group("y")])
        );
        for query in [
            "",
            "url=a&prefix=b",
            "group=x",
            "origin=a",
            "origin=a&origin=b&group=x",
            "all=1",
        ] {
            assert_eq!(parse_purges(query), None, "{query}");
        }
    }

    #[test]
    fn a_purge_may_be_soft() {
        let everything = |soft| {
            Some((
                PurgeOrder {
                    purges: vec![Purge::Prefix(String::new())],
                    soft,
                },
                false,
            ))
        };
        for (query, expected) in [
            ("prefix=&soft=true", everything(true)),
            ("soft=true&prefix=", everything(true)),
            ("prefix=&soft=false", everything(false)),
            ("prefix=&soft=yes", None),
            ("prefix=&soft", None),
            ("prefix=&soft=true&soft=true", None),
            ("soft=true", None),
            ("prefix=&local=x", None),
        ] {
            assert_eq!(parse_purges(query), expected, "{query}");
        }
        let group = |name: &str| Purge::Group {
            origin: "http://a".into(),
            name: name.into(),
        };
        let groups = Some((
            PurgeOrder {
                purges: vec![group("x"), group("y")],
                soft: true,
            },
            false,
        ));
        assert_eq!(
            parse_purges("group=y&soft=true&origin=http://a&group=x"),
            groups
        );
        let local = parse_purges("prefix=&local=true").map(|(_, local)| local);
        assert_eq!(local, Some(true));
    }
}
