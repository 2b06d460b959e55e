//! GET and HEAD. HEAD runs the inner service as GET and drops the body, so that both have the same tag.

use std::sync::Arc;

use http::header::{ETAG, LAST_MODIFIED, RANGE};
use http::{Method, Request, Response, StatusCode};
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::record::{Record, Revision};
use ifmatch_store::{Clock, Register};

use crate::answer;
use crate::asked::{self, Asked};
use crate::body::ResponseBody;
use crate::coding;
use crate::freshness::Allowed;
use crate::memory::Known;
use crate::note::{note, note_absence, remember};
use crate::partial::{self, Partial};
use crate::recall::Sought;
use crate::selected::{Selected, is_over};
use crate::shared::{Inner, Shared};
use crate::tagged::{Tagged, is_coded, own_tag, weakened};

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
    let looked = match sought.answer(&shared).await {
        Ok(response) => return Ok(response),
        Err(looked) => looked,
    };
    let reading = Reading { shared: &shared, asked: Asked::new(sought, &request), looked };
    let response = reading.run(inner, request).await?;
    let is_head = reading.asked.head.method == Method::HEAD;
    Ok(if is_head { answer::without_body(response) } else { response })
}

/// What was known when the read began.
#[derive(Debug)]
pub(crate) struct Looked {
    /// When that was.
    pub(crate) at: Timestamp,
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
pub(crate) struct Reading<'a, R, C> {
    pub(crate) shared: &'a Shared<R, C>,
    pub(crate) asked: Asked,
    pub(crate) looked: Looked,
}

impl<R: Register, C: Clock> Reading<'_, R, C> {
    /// Runs the inner service without the conditions. `Range` reaches it, since a service that seeks does less work than
    /// one whose response is cut. Where conditions cannot be evaluated on the part that it sends, it runs once more for
    /// the whole.
    async fn run<S, B>(
        &self,
        mut inner: S,
        mut request: Request<B>,
    ) -> Result<Response<ResponseBody<S::Body>>, S::Error>
    where
        S: Inner<B>,
        B: Default,
    {
        *request.method_mut() = Method::GET;
        asked::strip(request.headers_mut());
        if self.asked.head.method == Method::HEAD {
            request.headers_mut().remove(RANGE);
        }
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
        let response = inner.answer(request).await?;
        match (partial::judge(&self.asked, &response), again) {
            (Partial::Pass, _) => Ok(self.passed(response)),
            (Partial::Answer(answer), _) => Ok(answer.map(ResponseBody::read)),
            (Partial::Unclear, Some(again)) => {
                drop(response);
                let response = inner.run(*again).await?;
                Ok(self.whole(response).await)
            }
            (Partial::Unclear | Partial::None, _) => Ok(self.whole(response).await),
        }
    }

    /// A response that is passed on as it is, but for a date that a later state may share, and a strong tag that other
    /// bytes may have.
    fn passed<T: http_body::Body>(&self, mut response: Response<T>) -> Response<ResponseBody<T>> {
        let now = self.shared.now();
        let date = HttpDate::from_headers(response.headers(), LAST_MODIFIED);
        if response.status().is_success() && !date.is_some_and(|date| is_over(date, now)) {
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
    async fn whole<T>(&self, response: Response<T>) -> Response<ResponseBody<T>>
    where
        T: http_body::Body,
    {
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                Box::pin(note_absence(self)).await;
                return response.map(ResponseBody::inner);
            }
            _ => return self.passed(response),
        }
        let mut tagged = Tagged::of(self.shared, response).await;
        let allowed = Allowed::by(&tagged.head.headers);
        let seen = if allowed.shared { note(self, &tagged.head.headers, tagged.tag.as_ref()).await } else { None };
        if self.shared.config.behind_compression {
            coding::add_vary(&mut tagged.head.headers);
        }
        if let Some(seen) = seen.as_ref().filter(|_| self.asked.anonymous) {
            remember(self, &tagged.head.headers, &allowed, seen);
        }
        Selected::new(self, tagged, seen.as_ref()).answer()
    }
}
