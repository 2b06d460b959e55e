//! GET and HEAD. HEAD runs the inner service as GET and drops the body, so that both have the same tag.

pub(crate) mod cache_control;
pub(crate) mod cached;
pub(crate) mod collect;
pub(crate) mod compressed_tag;
pub(crate) mod observe;
mod partial;
pub(crate) mod request;
pub(crate) mod respond;
mod slice;
pub(crate) mod tag;
pub(crate) mod vary;

use std::sync::Arc;

use http::header::{ETAG, LAST_MODIFIED, RANGE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::Register;
use ifmatch_runtime::Clock;

use self::request::Asked;
use crate::body::ResponseBody;
use crate::responses;

use self::observe::{note, note_absence, remember};
use self::partial::Partial;
use crate::memory::Known;
use crate::read::cache_control::Allowed;
use crate::read::cached::Sought;
use crate::read::respond::{Selected, is_over};
use crate::read::tag::{Tagged, is_coded, own_tag, weakened};
use crate::shared::{Inner, Shared};

/// Answers a read: from memory if that is certain, else by running the inner service.
///
/// A register that fails makes no difference but that nothing is answered from memory, and nothing recorded.
pub(crate) async fn read<S, B, R, C>(
    shared: Arc<Shared<R, C>>,
    inner: S,
    sought: Sought,
    request: Request<B>,
) -> Result<Response<ResponseBody<S::Body>>, S::Error>
where
    S: Inner<B>,
    B: Default + Send + 'static,
    R: Register,
    C: Clock,
{
    let (looked, (head, body)) = match sought.answer(&shared).await {
        Ok(response) => return Ok(response),
        Err(looked) => (looked, request.into_parts()),
    };
    let (reading, head) = Reading::new(shared, sought, looked, head);
    reading.run(inner, Request::from_parts(head, body)).await
}

/// What was known when the read began.
#[derive(Debug)]
pub(crate) struct Looked {
    /// When that was.
    pub(crate) at: Timestamp,
    /// Time of day at the start of the request.
    pub(crate) wall: Timestamp,
    pub(crate) found: Found,
}

/// What the register said.
#[derive(Debug)]
pub(crate) enum Found {
    /// It failed.
    Nothing,
    Record(Box<Record>),
    /// That what is remembered of the representation is of the current version.
    Confirmed(Confirmed),
}

/// What is remembered of the representation, and the revision of the record that it agrees with.
#[derive(Debug)]
pub(crate) struct Confirmed {
    pub(crate) known: Arc<Known>,
    pub(crate) revision: Revision,
}

/// A read that runs the inner service.
pub(crate) struct Reading<R, C> {
    pub(crate) shared: Arc<Shared<R, C>>,
    pub(crate) asked: Asked,
    pub(crate) looked: Looked,
}

impl<R: Register, C: Clock> Reading<R, C> {
    /// The read, and the head for the inner service: GET, without the conditions. `Range` reaches it, since a service that
    /// seeks does less work than one whose response is cut.
    pub(crate) fn new(shared: Arc<Shared<R, C>>, sought: Sought, looked: Looked, mut head: Parts) -> (Self, Parts) {
        let asked = Asked::new(sought, &head);
        head.method = Method::GET;
        request::strip_conditions(&mut head.headers);
        if asked.is_head {
            head.headers.remove(RANGE);
        }
        (Self { shared, asked, looked }, head)
    }

    /// Runs the inner service; once more for the whole, where conditions cannot be evaluated on the part that it sends.
    async fn run<S, B>(self, mut inner: S, request: Request<B>) -> Result<Response<ResponseBody<S::Body>>, S::Error>
    where
        S: Inner<B>,
        B: Default,
    {
        let again = (request.headers().contains_key(RANGE) && self.asked.is_conditional()).then(|| {
            let mut again = Box::new(Request::new(B::default()));
            *again.uri_mut() = request.uri().clone();
            *again.version_mut() = request.version();
            *again.headers_mut() = request.headers().clone();
            *again.extensions_mut() = request.extensions().clone();
            again.headers_mut().remove(RANGE);
            again
        });
        inner.ready().await?;
        let mut response = inner.answer(request).await?;
        if let (Partial::Unclear, Some(again)) = (partial::judge(&self.asked, &response), again) {
            drop(response);
            response = inner.run(*again).await?;
        }
        Ok(self.answer(response).await)
    }

    /// Makes the answer of the inner service's response, where that is the one that is remembered: there is nothing to
    /// record then, and nothing to wait for.
    ///
    /// # Errors
    /// The response is another one.
    pub(crate) fn answer_at_once<T: Body>(
        &self,
        response: Response<T>,
    ) -> Result<Response<ResponseBody<T>>, Response<T>> {
        let is_whole = response.status() == StatusCode::OK;
        let Some(known) = observe::remembered(self, response.headers()).filter(|_| is_whole) else {
            return Err(response);
        };
        let tagged = Tagged::with(known.tag.clone(), response);
        let recorded = Some((known.last_modified, known.date.clone()));
        Ok(self.sent(Selected::new(self, tagged, recorded).answer()))
    }

    /// Makes the answer of the inner service's response.
    pub(crate) async fn answer<T: Body>(self, response: Response<T>) -> Response<ResponseBody<T>> {
        let answer = match partial::judge(&self.asked, &response) {
            Partial::Pass => self.passed(response),
            Partial::Answer(answer) => answer.map(ResponseBody::read),
            Partial::Unclear | Partial::None => self.whole(response).await,
        };
        self.sent(answer)
    }

    fn sent<T: Body>(&self, answer: Response<ResponseBody<T>>) -> Response<ResponseBody<T>> {
        if self.asked.is_head { responses::without_body(answer) } else { answer }
    }

    /// A response that is passed on as it is, but for a date that a later state may share, and a strong tag that other
    /// bytes may have.
    fn passed<T: Body>(&self, mut response: Response<T>) -> Response<ResponseBody<T>> {
        let date = HttpDate::from_headers(response.headers(), LAST_MODIFIED);
        if response.status().is_success() && !date.is_some_and(|date| is_over(date, self.looked.wall)) {
            response.headers_mut().remove(LAST_MODIFIED);
        }
        if response.status().is_success()
            && is_coded(response.headers())
            && let Some(tag) = own_tag(response.headers()).and_then(weakened)
        {
            response.headers_mut().insert(ETAG, tag.to_header());
        }
        response.map(ResponseBody::inner)
    }

    /// Tags a complete representation, records what was seen, and evaluates the conditions on it.
    async fn whole<T: Body>(&self, response: Response<T>) -> Response<ResponseBody<T>> {
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                Box::pin(note_absence(self)).await;
                return response.map(ResponseBody::inner);
            }
            _ => return self.passed(response),
        }
        let mut tagged = Tagged::of(&self.shared, response).await;
        let allowed = Allowed::by(&tagged.head.headers);
        let seen = if allowed.shared { note(self, &tagged.head.headers, tagged.tag.as_ref()).await } else { None };
        if self.shared.config.behind_compression {
            compressed_tag::add_vary(&mut tagged.head.headers);
        }
        if let Some(seen) = seen.as_ref().filter(|_| self.asked.anonymous) {
            remember(self, &tagged.head.headers, &allowed, seen);
        }
        Selected::new(self, tagged, seen.map(|seen| (seen.last_modified, seen.date()))).answer()
    }
}
