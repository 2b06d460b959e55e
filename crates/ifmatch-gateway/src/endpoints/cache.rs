//! `/-/cache`: counters of the cache, and purging.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use ifmatch_cache::{CacheHandle, Invalidation, NotStored, Outcome, Purge};
use ifmatch_core::problem::Problem;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::response;
use crate::purges::{Order, Purges};

/// Path of the endpoint.
pub(super) const PATH: &str = "/-/cache";

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
                if is_local { Ok(purged(order.run(cache))) } else { purge(cache, others, order, headers).await }
            }
            None => Err(Problem::bad_request(
                "add ?url=…, ?prefix=… or ?group=…&origin=… to select the responses to purge, and soft=true to make them stale",
            )),
        },
        _ => Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
            .detail("this endpoint supports GET and DELETE")
            .header(header::ALLOW, HeaderValue::from_static("GET, HEAD, DELETE"))),
    }
}

/// Purges this cache, and then those of other proxies.
async fn purge(
    cache: &CacheHandle,
    others: &Purges,
    order: Order,
    headers: &HeaderMap,
) -> Result<Response<Bytes>, Problem> {
    let count = order.run(cache);
    others.spread(order, headers).await?;
    Ok(purged(count))
}

/// The answer to a request about something that can be the URL of no response.
fn not_a_url(text: &str) -> Problem {
    Problem::bad_request(format!(
        "'{text}' is not a URL: write it with the scheme and the host that clients use, such as \
         https://shop.example/products/"
    ))
}

fn purged(count: usize) -> Response<Bytes> {
    response::json(StatusCode::OK, &json!({ "purged": count }))
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
    let url = cache.url(&head).ok_or_else(|| Problem::bad_request("name the host of the URL once"))?;
    let order = Order { purges: vec![Purge::Url(url)], soft: false };
    purge(cache, others, order, &head.headers).await
}

/// Returns what is stored for the URL of a query, or the counters if there is no query.
fn look_up(cache: &CacheHandle, query: &str) -> Result<Response<Bytes>, Problem> {
    let mut fields = form_urlencoded::parse(query.as_bytes());
    let url = match (fields.next(), fields.next()) {
        (None, _) => return Ok(counters(cache)),
        (Some((name, url)), None) if name == "url" => url,
        _ => return Err(Problem::bad_request("add ?url=… to look a URL up, or nothing for the counters")),
    };
    if Purge::Url(url.clone().into_owned()).not_a_url().is_some() {
        return Err(not_a_url(&url));
    }
    let found = cache.look_up(&url);
    let variants = found.variants.iter().map(|variant| {
        json!({
            "status": variant.status.as_u16(),
            "fresh": variant.is_fresh,
            "age": variant.age.as_secs(),
            "lifetime": variant.lifetime.as_secs(),
            "tag": variant.tag,
            "vary": variant.vary,
            "groups": variant.groups,
            "size": variant.size,
        })
    });
    let not_stored = found.not_stored.map(|why| json!({ "outcome": why.name(), "reason": why.reason() }));
    let described = json!({
        "url": url,
        "stored": variants.collect::<Vec<_>>(),
        "on_disk": found.is_on_disk,
        "not_stored": not_stored,
    });
    Ok(response::json(StatusCode::OK, &described))
}

fn counters(cache: &CacheHandle) -> Response<Bytes> {
    let metrics = cache.metrics();
    let mut requests: Map<String, Value> = Map::new();
    for outcome in Outcome::ALL {
        let reasons = requests.entry(outcome.name()).or_insert_with(|| Map::new().into());
        reasons[outcome.reason()] = metrics.count(outcome).into();
    }
    let not_stored = NotStored::ALL.map(|reason| (reason.reason().to_owned(), metrics.not_stored(reason).into()));
    let causes = Invalidation::ALL.map(|cause| (cause.cause().to_owned(), metrics.invalidated(cause).into()));
    let counters = json!({
        "requests": requests,
        "confirmed": metrics.confirmed,
        "stored": metrics.stored,
        "not_stored": Map::from_iter(not_stored),
        "invalidated": Map::from_iter(causes),
        "evictions": metrics.evictions,
        "bytes": metrics.bytes,
        "stored_bytes": metrics.stored_bytes,
        "disk_bytes": metrics.disk_bytes,
    });
    response::json(StatusCode::OK, &counters)
}

/// Parses a query into a purge, and `true` if it is for this proxy alone. An empty prefix purges everything, and must be explicit. `group`
/// may be repeated.
fn parse_purges(query: &str) -> Option<(Order, bool)> {
    let mut fields: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    fields.sort();
    let mut flag = |flag: &str| -> Option<bool> {
        let values: Vec<_> = fields.extract_if(.., |(name, _)| name == flag).map(|(_, value)| value).collect();
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
                (field == "group").then(|| Purge::Group { origin: origin.clone(), name: name.clone() })
            };
            groups.iter().map(purge).collect()
        }
        _ => None,
    };
    Some((Order { purges: purges?, soft }, local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_needs_an_explicit_selection() {
        let hard = |purges| Some((Order { purges, soft: false }, false));
        assert_eq!(parse_purges("url=http%3A%2F%2Fa%2Fb"), hard(vec![Purge::Url("http://a/b".into())]));
        assert_eq!(parse_purges("prefix="), hard(vec![Purge::Prefix(String::new())]));
        let group = |name: &str| Purge::Group { origin: "http://a".into(), name: name.into() };
        assert_eq!(parse_purges("origin=http://a&group=x"), hard(vec![group("x")]));
        assert_eq!(parse_purges("group=y&origin=http://a&group=x"), hard(vec![group("x"), group("y")]));
        for query in ["", "url", "url=a&prefix=b", "group=x", "origin=a", "origin=a&origin=b&group=x", "all=1"] {
            assert_eq!(parse_purges(query).filter(|_| query != "url"), None, "{query}");
        }
    }

    #[test]
    fn a_purge_may_be_soft() {
        let everything = |soft| Some((Order { purges: vec![Purge::Prefix(String::new())], soft }, false));
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
        let group = |name: &str| Purge::Group { origin: "http://a".into(), name: name.into() };
        let groups = Some((Order { purges: vec![group("x"), group("y")], soft: true }, false));
        assert_eq!(parse_purges("group=y&soft=true&origin=http://a&group=x"), groups);
        let local = parse_purges("prefix=&local=true").map(|(_, local)| local);
        assert_eq!(local, Some(true));
    }
}
