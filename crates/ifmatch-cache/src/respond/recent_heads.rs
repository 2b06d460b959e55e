//! A cache of response heads. The head of a stored response stays the same while its age in seconds does.

use std::sync::{Arc, RwLock, Weak};

use http::HeaderMap;

use crate::policy::cache_status::CacheStatus;
use crate::store::stored_response::StoredHead;

/// Number of slots.
const SLOTS: usize = 512;

/// Maximum size of a stored head, in bytes.
const LARGEST: usize = 4 * 1024;

/// Heads that were requested twice within a second. Each has one slot, determined by the address of its response, until
/// another one replaces it. A locked slot is skipped, without waiting.
#[derive(Debug)]
pub(crate) struct RecentHeads(Box<[RwLock<RecentForm>]>);

/// The inputs of a head, other than the stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadForm {
    /// `true` for a 304.
    pub(crate) unmodified: bool,
    /// Value of `Content-Length`.
    pub(crate) len: Option<u64>,
    /// In seconds.
    pub(crate) age: u64,
    pub(crate) status: CacheStatus,
}

/// The last form requested.
#[derive(Debug, Default)]
struct RecentForm {
    /// Keeps the address from being reused.
    of: Weak<StoredHead>,
    form: Option<HeadForm>,
    /// `None` until the form is requested a second time.
    head: Option<HeaderMap>,
}

impl Default for RecentHeads {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| RwLock::default()).collect())
    }
}

impl RecentHeads {
    /// Returns the head of this form, creating it if necessary.
    pub(crate) fn get(
        &self,
        meta: &Arc<StoredHead>,
        form: HeadForm,
        make: impl FnOnce() -> HeaderMap,
    ) -> HeaderMap {
        let slot = &self.0[slot_of(meta, form.unmodified)];
        let known = match slot.try_read() {
            Ok(slot) if slot.is(meta, form) => match &slot.head {
                Some(head) => return head.clone(),
                None => true,
            },
            _ => false,
        };
        let head = make();
        if (known || meta.size() <= LARGEST)
            && let Ok(mut slot) = slot.try_write()
        {
            *slot = RecentForm {
                of: Arc::downgrade(meta),
                form: Some(form),
                head: known.then(|| head.clone()),
            };
        }
        head
    }
}

impl RecentForm {
    fn is(&self, meta: &Arc<StoredHead>, form: HeadForm) -> bool {
        self.of.as_ptr() == Arc::as_ptr(meta) && self.form == Some(form)
    }
}

/// Returns the index of the slot. Neighbours in memory have different slots, as do the two heads of one response.
fn slot_of(meta: &Arc<StoredHead>, unmodified: bool) -> usize {
    let address = Arc::as_ptr(meta).addr() / size_of::<StoredHead>();
    (address * 2 + usize::from(unmodified)) % SLOTS
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use bytes::Bytes;
    use http::header::{AGE, CACHE_CONTROL, CONTENT_LENGTH, ETAG, IF_NONE_MATCH, RANGE, VARY};
    use http::{HeaderValue, Method, Request, StatusCode};
    use ifmatch_core::date::Timestamp;

    use super::*;
    use crate::body::in_memory::MemoryBody;
    use crate::config::CacheConfig;
    use crate::policy::cache_status::{CACHE_STATUS, Forward};
    use crate::request::{CacheRequest, RequestHandling};
    use crate::respond::respond;
    use crate::store::stored_response::{ArrivalContext, StoredBody, StoredResponse};

    fn stored(tag: &str, status: StatusCode) -> StoredResponse {
        let (config, request) = (CacheConfig::default(), Request::new(()).into_parts().0);
        let moment = Timestamp::from_micros(1_000_000_000);
        let arrival = ArrivalContext::new(&config, &request, "", 1, moment, moment);
        let mut response = HeaderMap::new();
        for (name, value) in [
            (CACHE_CONTROL, "max-age=2, stale-while-revalidate=60"),
            (VARY, "accept-language"),
            (CACHE_STATUS, "origin; hit"),
            (ETAG, tag),
        ] {
            response.insert(name, HeaderValue::from_str(value).unwrap());
        }
        let content = MemoryBody::compact(&[Bytes::from(vec![7; 100])].into(), None);
        let meta = Arc::new(StoredHead::new(status, &response, &arrival));
        StoredResponse {
            meta,
            body: StoredBody::Whole(Arc::new(content)),
        }
    }

    fn request(method: Method, field: Option<(http::HeaderName, &'static str)>) -> CacheRequest {
        let mut request = Request::builder().method(method).uri("http://a.example/");
        if let Some((name, value)) = field {
            request = request.header(name, value);
        }
        let (head, body) = request
            .body(http_body_util::Empty::<Bytes>::new())
            .unwrap()
            .into_parts();
        let config = CacheConfig::default();
        let RequestHandling::Read(key, flags) = RequestHandling::of(&head, &body, &config) else {
            panic!("not cacheable")
        };
        CacheRequest::new(head, key, flags, &config)
    }

    fn head(
        recent: &RecentHeads,
        request: &CacheRequest,
        stored: &StoredResponse,
        now: u64,
        status: CacheStatus,
    ) -> (u16, HeaderMap) {
        let now = Timestamp::from_micros(1_000_000_000 + now);
        let cached =
            respond::<http_body_util::Empty<Bytes>>(recent, request, stored, now, status).unwrap();
        let head = cached.response.into_parts().0;
        (head.status.as_u16(), head.headers)
    }

    /// Compares cached heads with new ones for a cycle of requests, responses and statuses.
    fn compare(recent: &RecentHeads, responses: &[StoredResponse], rounds: usize, step: usize) {
        let requests = [
            request(Method::GET, None),
            request(Method::GET, Some((IF_NONE_MATCH, "\"a\""))),
            request(Method::GET, Some((RANGE, "bytes=0-9"))),
            request(Method::HEAD, None),
        ];
        let collapsed = CacheStatus {
            collapsed: true,
            ..CacheStatus::forwarded(Forward::Stale)
        };
        let statuses = [
            CacheStatus::HIT,
            CacheStatus::HIT,
            CacheStatus::HIT,
            collapsed,
        ];
        for round in (0..rounds).map(|round| round * step) {
            let (stored, request) = (
                &responses[round % responses.len()],
                &requests[round / 3 % requests.len()],
            );
            let (now, status) = (
                round as u64 * 50_000 % 5_000_000,
                statuses[round / 7 % statuses.len()],
            );
            for _ in 0..3 {
                let long = head(&RecentHeads::default(), request, stored, now, status);
                assert_eq!(
                    head(recent, request, stored, now, status),
                    long,
                    "in round {round}"
                );
            }
        }
    }

    #[test]
    fn a_cached_head_equals_a_new_one() {
        let recent = RecentHeads::default();
        let responses = ["\"a\"", "W/\"b\"", "c"].map(|tag| stored(tag, StatusCode::OK));
        let empty = stored("\"a\"", StatusCode::NO_CONTENT);
        compare(&recent, &[&responses[..], &[empty]].concat(), 2_000, 1);
    }

    #[test]
    fn threads_do_not_mix_up_heads() {
        let recent = RecentHeads::default();
        let responses = ["\"a\"", "\"b\""].map(|tag| stored(tag, StatusCode::OK));
        let (recent, responses) = (&recent, &responses);
        thread::scope(|scope| {
            for step in [1, 3, 7, 11] {
                scope.spawn(move || compare(recent, responses, 500, step));
            }
        });
    }

    #[test]
    fn a_new_response_does_not_get_the_head_of_a_dropped_one() {
        let recent = RecentHeads::default();
        let request = request(Method::GET, None);
        for at in 0..1_000 {
            let tag = format!("\"{at}\"");
            let stored = stored(&tag, StatusCode::OK);
            for _ in 0..3 {
                assert_eq!(
                    head(&recent, &request, &stored, 0, CacheStatus::HIT).1[ETAG],
                    tag
                );
            }
        }
    }

    #[test]
    fn repeated_requests_within_a_second_get_the_same_head() {
        let recent = RecentHeads::default();
        let stored = stored("\"a\"", StatusCode::OK);
        let form = HeadForm {
            unmodified: false,
            len: Some(100),
            age: 7,
            status: CacheStatus::HIT,
        };
        let made = std::cell::Cell::new(0);
        let get = |form| {
            recent.get(&stored.meta, form, || {
                made.set(made.get() + 1);
                HeaderMap::from_iter([(AGE, HeaderValue::from(made.get()))])
            })
        };
        let ages: Vec<_> = (0..4).map(|_| get(form)[AGE].clone()).collect();
        assert_eq!(
            ages,
            ["1", "2", "2", "2"],
            "kept from the second request on"
        );
        assert_eq!(get(HeadForm { age: 8, ..form })[AGE], "3");
        assert_eq!(get(HeadForm { len: None, ..form })[AGE], "4");
        let status = CacheStatus::HIT.with_ttl(Duration::from_secs(9), Duration::from_secs(2));
        assert_eq!(get(HeadForm { status, ..form })[AGE], "5");
        assert!(!get(form).contains_key(CONTENT_LENGTH));
    }
}
