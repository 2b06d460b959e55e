//! The last step of a read: the conditions and ranges, evaluated on the representation that is about to be sent.

use http::header::{ACCEPT_RANGES, ETAG, LAST_MODIFIED, RANGE};
use http::{HeaderValue, Method, Response};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::precondition::{Validators, Verdict};
use ifmatch_core::problem::Problem;
use ifmatch_core::range::{Limits, Representation, Selection, select};
use ifmatch_register::Register;
use ifmatch_runtime::Clock;

use crate::body::ResponseBody;
use crate::read::Reading;
use crate::read::collect::Collected;
use crate::read::compressed_tag;
use crate::read::request::Asked;
use crate::read::slice;
use crate::read::tag::Tagged;
use crate::responses;

/// The representation that is about to be sent.
pub(crate) struct Selected<'a, T: Body> {
    asked: &'a Asked,
    tagged: Tagged<T>,
    /// The tag that the client sees.
    shown: Option<EntityTag>,
    last_modified: Option<HttpDate>,
    behind_compression: bool,
    now: Timestamp,
}

impl<'a, T: Body> Selected<'a, T> {
    /// `recorded` is the modification date that the record has, and the same as a header field.
    pub(crate) fn new<R: Register, C: Clock>(
        reading: &'a Reading<R, C>,
        mut tagged: Tagged<T>,
        recorded: Option<(HttpDate, HeaderValue)>,
    ) -> Self {
        let behind_compression = reading.shared.config.behind_compression;
        let headers = &mut tagged.head.headers;
        // A date must have come when the read began: what changes from then on may have the same.
        let now = reading.looked.wall;
        let own = |headers| HttpDate::from_headers(headers, LAST_MODIFIED).filter(|date| is_over(*date, now));
        // The dates of one resource must all be of one kind. Without a tag there is nothing in the record.
        let date = match tagged.tag {
            Some(_) => recorded,
            None => own(headers).map(|date| (date, date.to_header())),
        };
        let last_modified = date.filter(|(date, _)| date.has_come(now)).map(|(date, field)| {
            headers.insert(LAST_MODIFIED, field);
            date
        });
        if last_modified.is_none() {
            headers.remove(LAST_MODIFIED);
        }
        let mut shown = tagged.tag.clone();
        if behind_compression && let Some(tag) = &mut shown {
            *tag = compressed_tag::shown(tag, &reading.asked.headers);
            headers.insert(ETAG, tag.to_header());
        }
        Self { asked: &reading.asked, tagged, shown, last_modified, behind_compression, now }
    }

    /// Evaluates the conditions, then `Range`.
    pub(crate) fn answer(self) -> Response<ResponseBody<T>> {
        let validators = Validators { tags: self.shown.as_slice(), last_modified: self.last_modified };
        match self.asked.conditions.evaluate(&Method::GET, Some(&validators)) {
            Verdict::NotModified => responses::not_modified(self.tagged.head.headers),
            Verdict::Failed(condition) => {
                responses::problem(&Problem::precondition_failed(condition, self.shown.as_ref()))
            }
            Verdict::Proceed => self.cut(),
        }
    }

    /// Cuts out what `Range` asks for, where the whole body is at hand. A part is not compressed by a layer outside, so
    /// that it has the tag without a suffix, and `If-Range` must name that one.
    fn cut(mut self) -> Response<ResponseBody<T>> {
        let Collected::Whole(content) = &self.tagged.body else { return self.tagged.into_response() };
        if !self.behind_compression {
            self.tagged.head.headers.entry(ACCEPT_RANGES).or_insert(HeaderValue::from_static("bytes"));
        }
        if self.asked.is_head || !self.asked.headers.contains_key(RANGE) {
            return self.tagged.into_response();
        }
        let tag = self.tagged.tag.as_ref();
        if tag != self.shown.as_ref() && self.asked.conditions.if_match.is_some() {
            // It named the bytes of a coding, and these are others.
            return self.tagged.into_response();
        }
        let sent = Representation { tag, last_modified: self.last_modified, len: content.len() };
        let parts = match select(&self.asked.headers, &sent, self.now, Limits::default()) {
            Selection::Whole => return self.tagged.into_response(),
            Selection::Unsatisfiable => return responses::problem(&Problem::range_not_satisfiable(sent.len)),
            Selection::Parts(parts) => parts,
        };
        if parts.len() > 1 && self.behind_compression {
            return self.tagged.into_response();
        }
        let mut head = self.tagged.head;
        if let Some(tag) = tag {
            head.headers.insert(ETAG, tag.to_header());
        }
        slice::partial(head, content, parts)
    }
}

/// Whether a second is past: no later state can have the same date then.
pub(crate) fn is_over(date: HttpDate, now: Timestamp) -> bool {
    HttpDate::from_unix(date.unix().saturating_add(1)).has_come(now)
}
