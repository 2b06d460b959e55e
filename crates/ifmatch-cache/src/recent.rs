//! The heads of recent answers: as long as its age in seconds is the same, a stored response has the same head.

use std::sync::{Arc, RwLock, Weak};

use http::HeaderMap;

use crate::policy::cache_status::CacheStatus;
use crate::stored::Meta;

/// How many heads are kept.
const PLACES: usize = 512;

/// A stored response that takes more, without its body, is not worth it; in bytes.
const LARGEST: usize = 4 * 1024;

/// Heads that were asked for twice within a second. Each has one place, by the address of its response, and is gone when
/// another one takes that place. Nobody waits here: who finds a place busy makes the head.
#[derive(Debug)]
pub(crate) struct RecentHeads(Box<[RwLock<Place>]>);

/// What the head of an answer is made of, besides the stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// It is that of a 304.
    pub(crate) unmodified: bool,
    /// What `Content-Length` says.
    pub(crate) len: Option<u64>,
    /// In seconds.
    pub(crate) age: u64,
    pub(crate) status: CacheStatus,
}

/// The last form that was asked for.
#[derive(Debug, Default)]
struct Place {
    /// The address cannot be another response's as long as this is here.
    of: Weak<Meta>,
    form: Option<Form>,
    /// None: it was asked for once only.
    head: Option<HeaderMap>,
}

impl Default for RecentHeads {
    fn default() -> Self {
        Self((0..PLACES).map(|_| RwLock::default()).collect())
    }
}

impl RecentHeads {
    /// The head of this form, made if it is not there.
    pub(crate) fn get(&self, meta: &Arc<Meta>, form: Form, make: impl FnOnce() -> HeaderMap) -> HeaderMap {
        let place = &self.0[place(meta, form.unmodified)];
        let known = match place.try_read() {
            Ok(place) if place.is(meta, form) => match &place.head {
                Some(head) => return head.clone(),
                None => true,
            },
            _ => false,
        };
        let head = make();
        if (known || meta.size() <= LARGEST)
            && let Ok(mut place) = place.try_write()
        {
            *place = Place { of: Arc::downgrade(meta), form: Some(form), head: known.then(|| head.clone()) };
        }
        head
    }
}

impl Place {
    fn is(&self, meta: &Arc<Meta>, form: Form) -> bool {
        self.of.as_ptr() == Arc::as_ptr(meta) && self.form == Some(form)
    }
}

/// Neighbours in memory have different places, and so have the two heads of one response.
fn place(meta: &Arc<Meta>, unmodified: bool) -> usize {
    let address = Arc::as_ptr(meta).addr() / size_of::<Meta>();
    (address * 2 + usize::from(unmodified)) % PLACES
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
    use crate::answer::answer;
    use crate::asked::{Asked, Kind};
    use crate::config::Config;
    use crate::content::Content;
    use crate::policy::cache_status::{CACHE_STATUS, Forward};
    use crate::stored::{Body, Came, Stored};

    fn stored(tag: &str, status: StatusCode) -> Stored {
        let request = HeaderMap::new();
        let moment = Timestamp::from_micros(1_000_000_000);
        let came = Came {
            request: &request,
            implicit: "",
            began: 1,
            requested: moment,
            received: moment,
            heuristic: None,
            unstored: &[],
            always_validate: false,
        };
        let mut response = HeaderMap::new();
        for (name, value) in [
            (CACHE_CONTROL, "max-age=2, stale-while-revalidate=60"),
            (VARY, "accept-language"),
            (CACHE_STATUS, "origin; hit"),
            (ETAG, tag),
        ] {
            response.insert(name, HeaderValue::from_str(value).unwrap());
        }
        let content = Content::compact(&[Bytes::from(vec![7; 100])].into(), None);
        let meta = Arc::new(Meta::new(status, &response, &came));
        Stored { meta, body: Body::Whole(Arc::new(content)) }
    }

    fn asked(method: Method, field: Option<(http::HeaderName, &'static str)>) -> Asked {
        let mut request = Request::builder().method(method).uri("http://a.example/");
        if let Some((name, value)) = field {
            request = request.header(name, value);
        }
        let (head, body) = request.body(http_body_util::Empty::<Bytes>::new()).unwrap().into_parts();
        let config = Config::default();
        let Kind::Read(key, signs) = Kind::of(&head, &body, &config) else { panic!("it can be answered from a cache") };
        Asked::new(head, key, signs, &config)
    }

    fn head(recent: &RecentHeads, asked: &Asked, stored: &Stored, now: u64, status: CacheStatus) -> (u16, HeaderMap) {
        let now = Timestamp::from_micros(1_000_000_000 + now);
        let answer = answer::<http_body_util::Empty<Bytes>>(recent, asked, stored, now, status).unwrap();
        let head = answer.response.into_parts().0;
        (head.status.as_u16(), head.headers)
    }

    /// All the questions and statuses in all the orders that a cycle through the numbers makes.
    fn compare(recent: &RecentHeads, responses: &[Stored], rounds: usize, step: usize) {
        let asked = [
            asked(Method::GET, None),
            asked(Method::GET, Some((IF_NONE_MATCH, "\"a\""))),
            asked(Method::GET, Some((RANGE, "bytes=0-9"))),
            asked(Method::HEAD, None),
        ];
        let collapsed = CacheStatus { collapsed: true, ..CacheStatus::forwarded(Forward::Stale) };
        let statuses = [CacheStatus::HIT, CacheStatus::HIT, CacheStatus::HIT, collapsed];
        for round in (0..rounds).map(|round| round * step) {
            let (stored, asked) = (&responses[round % responses.len()], &asked[round / 3 % asked.len()]);
            let (now, status) = (round as u64 * 50_000 % 5_000_000, statuses[round / 7 % statuses.len()]);
            for _ in 0..3 {
                let long = head(&RecentHeads::default(), asked, stored, now, status);
                assert_eq!(head(recent, asked, stored, now, status), long, "in round {round}");
            }
        }
    }

    #[test]
    fn the_short_way_and_the_long_one_lead_to_the_same_head() {
        let recent = RecentHeads::default();
        let responses = ["\"a\"", "W/\"b\"", "c"].map(|tag| stored(tag, StatusCode::OK));
        let empty = stored("\"a\"", StatusCode::NO_CONTENT);
        compare(&recent, &[&responses[..], &[empty]].concat(), 2_000, 1);
    }

    #[test]
    fn threads_get_no_head_of_each_other() {
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
    fn a_new_response_does_not_get_the_head_of_one_that_is_gone() {
        let recent = RecentHeads::default();
        let asked = asked(Method::GET, None);
        for at in 0..1_000 {
            let tag = format!("\"{at}\"");
            let stored = stored(&tag, StatusCode::OK);
            for _ in 0..3 {
                assert_eq!(head(&recent, &asked, &stored, 0, CacheStatus::HIT).1[ETAG], tag);
            }
        }
    }

    #[test]
    fn who_asks_again_within_a_second_gets_the_same_head() {
        let recent = RecentHeads::default();
        let stored = stored("\"a\"", StatusCode::OK);
        let form = Form { unmodified: false, len: Some(100), age: 7, status: CacheStatus::HIT };
        let made = std::cell::Cell::new(0);
        let get = |form| {
            recent.get(&stored.meta, form, || {
                made.set(made.get() + 1);
                HeaderMap::from_iter([(AGE, HeaderValue::from(made.get()))])
            })
        };
        let ages: Vec<_> = (0..4).map(|_| get(form)[AGE].clone()).collect();
        assert_eq!(ages, ["1", "2", "2", "2"], "it is kept once it was asked for a second time");
        assert_eq!(get(Form { age: 8, ..form })[AGE], "3");
        assert_eq!(get(Form { len: None, ..form })[AGE], "4");
        let status = CacheStatus::HIT.with_ttl(Duration::from_secs(9), Duration::from_secs(2));
        assert_eq!(get(Form { status, ..form })[AGE], "5");
        assert!(!get(form).contains_key(CONTENT_LENGTH));
    }
}
