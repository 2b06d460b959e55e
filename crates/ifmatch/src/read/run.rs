//! Running the inner service, and turning its response into the client's.

use std::sync::Arc;

use http::header::{ETAG, LAST_MODIFIED, RANGE};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::precondition::{Validators, Verdict};
use ifmatch_core::problem::Problem;
use ifmatch_core::range::{Representation, if_range};

use crate::body::{RequestBody, ResponseBody};
use crate::inner::{self, InnerService, RequestContent};
use crate::read::cache_control::AllowedReuse;
use crate::read::cached::{LookupResult, MemoryLookup};
use crate::read::compressed_tag;
use crate::read::observe::{
    is_undisturbed, note_date, observe, observe_absence, remember, remembered, tag_of_revision,
};
use crate::read::request::ReadContext;
use crate::read::respond::SelectedRepresentation;
use crate::read::tag::{TaggedResponse, is_encoded, own_tag, weaken};
use crate::responses;
use crate::shared::LayerState;

/// Answers a read from memory if possible, else by running the inner service.
///
/// If the register fails, nothing is answered from memory and nothing is recorded.
pub(crate) async fn read<S, B>(
    shared: Arc<LayerState>,
    inner: S,
    lookup: MemoryLookup,
    request: Request<RequestBody<B>>,
) -> Result<Response<ResponseBody<S::Body>>, S::Error>
where
    S: InnerService<B>,
    B: RequestContent,
{
    let baseline = match lookup.result(&shared).await {
        LookupResult::NotModified(response) => return Ok(response),
        LookupResult::Run(baseline) => baseline,
    };
    let (head, body) = request.into_parts();
    let (context, head) = ReadContext::new(shared, lookup.key, baseline, head);
    context.run(inner, Request::from_parts(head, body)).await
}

impl ReadContext {
    /// Runs the inner service. Runs it again for the whole representation if it sends a part on which the conditions
    /// can't be evaluated.
    async fn run<S, B>(
        self,
        mut inner: S,
        request: Request<RequestBody<B>>,
    ) -> Result<Response<ResponseBody<S::Body>>, S::Error>
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let without_range =
            (request.headers().contains_key(RANGE) && self.request.is_conditional()).then(|| {
                let mut whole = Box::new(Request::new(RequestBody::default()));
                *whole.uri_mut() = request.uri().clone();
                *whole.version_mut() = request.version();
                *whole.headers_mut() = request.headers().clone();
                *whole.extensions_mut() = request.extensions().clone();
                whole.headers_mut().remove(RANGE);
                whole
            });
        let mut response = inner::run(&mut inner, request).await?;
        if let (PartialConditions::Undecidable, Some(request)) =
            (self.evaluate_part(&response), without_range)
        {
            drop(response);
            response = inner::run(&mut inner, *request).await?;
        }
        Ok(self.respond(response).await)
    }

    /// Turns the inner service's response into the client's, if it is the remembered one: then there is nothing to
    /// record or to wait for.
    ///
    /// # Errors
    /// Returns any other response to the caller, for [`respond`](Self::respond).
    pub(crate) fn respond_now<T: Body>(
        &self,
        response: Response<T>,
    ) -> Result<Response<ResponseBody<T>>, Response<T>> {
        let is_whole = response.status() == StatusCode::OK;
        let Some(known) = remembered(self, response.headers()).filter(|_| is_whole) else {
            return Err(response);
        };
        let tagged = TaggedResponse::new(known.tag.clone(), response);
        let recorded = Some((known.last_modified, known.date.clone()));
        Ok(self.finish(SelectedRepresentation::new(self, tagged, recorded).respond()))
    }

    /// Turns the inner service's response into the client's.
    pub(crate) async fn respond<T: Body>(self, response: Response<T>) -> Response<ResponseBody<T>> {
        let response = match self.evaluate_part(&response) {
            PartialConditions::Send => self.pass_through(response),
            PartialConditions::NotModified => {
                responses::not_modified(response.into_parts().0.headers)
            }
            PartialConditions::Failed(problem) => responses::problem(&problem),
            PartialConditions::Undecidable | PartialConditions::NoPart => {
                self.respond_whole(response).await
            }
        };
        self.finish(response)
    }

    fn finish<T: Body>(&self, response: Response<ResponseBody<T>>) -> Response<ResponseBody<T>> {
        if self.request.is_head {
            responses::without_body(response)
        } else {
            response
        }
    }

    /// Evaluates the conditions on a part, by its own tag, if that tag names exactly these bytes. Conditions come before
    /// 416.
    fn evaluate_part<T>(&self, response: &Response<T>) -> PartialConditions {
        let request = &self.request;
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::RANGE_NOT_SATISFIABLE if request.is_conditional() => {
                return PartialConditions::Undecidable;
            }
            _ => return PartialConditions::NoPart,
        }
        if !request.is_conditional() {
            return PartialConditions::Send;
        }
        let own = own_tag(response.headers()).filter(|_| !is_encoded(response.headers()));
        let Some(tag) = own else {
            return PartialConditions::Undecidable;
        };
        if request.conditions.if_unmodified_since.is_some()
            || request.conditions.if_modified_since.is_some()
        {
            return PartialConditions::Undecidable;
        }
        let validators = Validators {
            tags: std::slice::from_ref(&tag),
            last_modified: None,
        };
        match request.conditions.evaluate(&Method::GET, Some(&validators)) {
            Verdict::NotModified => PartialConditions::NotModified,
            // The condition may name the bytes that a compression layer makes of the whole.
            Verdict::Failed(_) if self.shared.config.behind_compression => {
                PartialConditions::Undecidable
            }
            Verdict::Failed(condition) => {
                PartialConditions::Failed(Problem::precondition_failed(condition, Some(&tag)))
            }
            Verdict::Proceed => {
                let part = Representation {
                    tag: Some(&tag),
                    last_modified: None,
                    len: 0,
                };
                match if_range(&request.headers, &part, Timestamp::default()) {
                    Some(false) => PartialConditions::Undecidable,
                    Some(true) | None => PartialConditions::Send,
                }
            }
        }
    }

    /// Passes a response on. Removes a date that a later state may share, and weakens a strong tag that other bytes may
    /// have.
    fn pass_through<T: Body>(&self, mut response: Response<T>) -> Response<ResponseBody<T>> {
        if response.status().is_success() {
            let headers = response.headers_mut();
            let date = HttpDate::from_headers(headers, LAST_MODIFIED);
            if !date.is_some_and(|date| date.has_ended(self.baseline.wall)) {
                headers.remove(LAST_MODIFIED);
            }
            if is_encoded(headers)
                && let Some(tag) = own_tag(headers).and_then(weaken)
            {
                headers.insert(ETAG, tag.to_header());
            }
        }
        response.map(ResponseBody::inner)
    }

    /// Tags a whole representation, records the observation, and evaluates the conditions.
    async fn respond_whole<T: Body>(&self, response: Response<T>) -> Response<ResponseBody<T>> {
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                Box::pin(observe_absence(self)).await;
                return response.map(ResponseBody::inner);
            }
            _ => return self.pass_through(response),
        }
        let mut tagged = TaggedResponse::of(&self.shared, response).await;
        let reuse = AllowedReuse::of(&tagged.head.headers);
        let of_revision = if reuse.is_private {
            None
        } else {
            tag_of_revision(self, &tagged)
        };
        let tag = of_revision.as_ref().or(tagged.tag.as_ref());
        let mut recorded = if reuse.is_private {
            None
        } else {
            observe(self, &tagged.head.headers, tag).await
        };
        if let (Some(tag), Some(found)) = (of_revision, &recorded) {
            if Box::pin(is_undisturbed(self, found)).await {
                tagged.head.headers.insert(ETAG, tag.to_header());
                tagged.tag = Some(tag);
            } else {
                recorded = None;
            }
        } else if let Some(recorded) = &recorded {
            note_date(self, recorded);
        }
        if self.shared.config.behind_compression {
            compressed_tag::add_vary(&mut tagged.head.headers);
        }
        if let Some(recorded) = recorded.as_ref().filter(|_| self.request.is_shareable) {
            remember(self, &tagged.head.headers, &reuse, recorded);
        }
        SelectedRepresentation::new(
            self,
            tagged,
            recorded.map(|recorded| (recorded.last_modified, recorded.date())),
        )
        .respond()
    }
}

/// The conditions on a part that the inner service has cut itself.
enum PartialConditions {
    /// The response isn't a part.
    NoPart,
    Send,
    NotModified,
    Failed(Problem),
    /// The conditions can only be evaluated on the whole representation.
    Undecidable,
}
