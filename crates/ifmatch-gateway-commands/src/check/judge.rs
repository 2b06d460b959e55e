//! The judgement of a response: as the RFC says, harmlessly different, or dangerous.

use bytes::Bytes;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, ETAG};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::cases::{CheckCase, ExpectedResponse, NEW, PART, WRITTEN};
use super::site::SeenResource;

/// The result of a check.
pub(super) struct CheckFinding {
    /// Section of RFC 9110.
    pub(super) section: &'static str,
    pub(super) name: String,
    /// The consequence of `No`, if there may be one.
    pub(super) risk: Option<ClientRisk>,
    pub(super) verdict: CheckVerdict,
    /// What the server did.
    pub(super) detail: String,
}

/// The consequence for clients if a check says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientRisk {
    /// An update is lost.
    Lost,
    /// The bytes of two versions look like one.
    Mixed,
    /// Conditional writes are impossible.
    Unusable,
}

/// The result of a check in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckVerdict {
    /// As the RFC says.
    Yes,
    /// Dangerous.
    No,
    /// Not as the RFC says, but harmless.
    Differs,
    /// The server lacks what the check needs.
    Unchecked,
}

/// The response to a case, and the resource around it.
pub(super) struct CaseAnswer {
    pub(super) response: Response<Bytes>,
    pub(super) before: SeenResource,
    /// `None` after a read.
    pub(super) after: Option<SeenResource>,
}

impl ClientRisk {
    /// Parses the risk of a row in `cases.txt`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Lost, Self::Mixed, Self::Unusable]
            .into_iter()
            .find(|risk| risk.name() == text)
    }

    /// Returns the name of the risk, in `cases.txt` and JSON.
    fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Mixed => "mixed",
            Self::Unusable => "unusable",
        }
    }
}

impl CheckVerdict {
    /// Returns the word of the table.
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "NO",
            Self::Differs => "differs",
            Self::Unchecked => "-",
        }
    }

    /// Returns `Yes` if the check holds, and `No` otherwise.
    pub(super) fn safe_if(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

impl CheckFinding {
    /// Returns the result of a check with a risk.
    pub(super) fn new(
        section: &'static str,
        name: &str,
        risk: ClientRisk,
        verdict: CheckVerdict,
        detail: String,
    ) -> Self {
        Self {
            section,
            name: name.to_owned(),
            risk: Some(risk),
            verdict,
            detail,
        }
    }

    /// Returns the result as JSON.
    pub(super) fn json(&self) -> Value {
        let result = match self.verdict {
            CheckVerdict::Unchecked => "unchecked".to_owned(),
            verdict => verdict.shown().to_lowercase(),
        };
        json!({
            "section": self.section,
            "check": self.name,
            "risk": self.risk.map(ClientRisk::name),
            "result": result,
            "detail": self.detail,
        })
    }
}

/// Judges the response to a case.
pub(super) fn judge(case: &CheckCase, answer: &CaseAnswer) -> (CheckVerdict, String) {
    let status = answer.response.status();
    let (verdict, why) = match &answer.after {
        Some(after) => written(case, answer, after),
        None => read(case, answer),
    };
    (
        verdict,
        if why.is_empty() {
            status.to_string()
        } else {
            format!("{status}, {why}")
        },
    )
}

/// Judges a request without a valid response. A write that should succeed may well have.
pub(super) fn unanswered(
    case: &CheckCase,
    before: &SeenResource,
    after: Option<&SeenResource>,
    why: &str,
) -> (CheckVerdict, String) {
    let kept = after.is_none_or(|after| before.is_same(after));
    let verdict = if kept || matches!(case.expected, ExpectedResponse::Done) {
        CheckVerdict::Differs
    } else {
        CheckVerdict::No
    };
    (verdict, format!("no valid response: {why}"))
}

/// Judges a write by what it did, before the status.
fn written(
    case: &CheckCase,
    answer: &CaseAnswer,
    after: &SeenResource,
) -> (CheckVerdict, &'static str) {
    let status = answer.response.status();
    let kept = answer.before.is_same(after);
    let done = if case.method == Method::DELETE {
        !after.exists()
    } else {
        after.exists() && after.body == WRITTEN
    };
    match &case.expected {
        ExpectedResponse::Done if status.is_success() && done => (CheckVerdict::Yes, ""),
        ExpectedResponse::Done if status.is_success() => {
            (CheckVerdict::No, "but the content differs")
        }
        ExpectedResponse::Done if kept && case.risk == Some(ClientRisk::Unusable) => {
            (CheckVerdict::No, "")
        }
        _ if status.is_success() && kept && !done => (CheckVerdict::No, "but nothing was changed"),
        ExpectedResponse::Part if after.body == spliced() => {
            (CheckVerdict::Yes, "only the part was changed")
        }
        ExpectedResponse::Part if kept => (CheckVerdict::Yes, ""),
        ExpectedResponse::Status(expected) if kept && status == *expected => {
            (CheckVerdict::Yes, "")
        }
        _ if kept => (CheckVerdict::Differs, "nothing was changed"),
        _ if case.risk == Some(ClientRisk::Lost) || !status.is_success() => {
            (CheckVerdict::No, "and the content was changed")
        }
        _ => (CheckVerdict::Differs, "and the content was changed"),
    }
}

/// Returns the content after a change of the part alone.
fn spliced() -> String {
    format!("{PART}{}", &NEW[PART.len()..])
}

/// Judges a read by its bytes, before the status.
fn read(case: &CheckCase, answer: &CaseAnswer) -> (CheckVerdict, &'static str) {
    let response = &answer.response;
    let whole = case.method == Method::HEAD || response.body() == &answer.before.body;
    let departs = if case.risk == Some(ClientRisk::Mixed) {
        CheckVerdict::No
    } else {
        CheckVerdict::Differs
    };
    match (&case.expected, response.status()) {
        (_, StatusCode::OK) if !whole => (CheckVerdict::No, "but the content is wrong"),
        (_, StatusCode::PARTIAL_CONTENT) if case.method == Method::GET && !is_part(response) => (
            CheckVerdict::No,
            "but the bytes aren't those in its Content-Range",
        ),
        (ExpectedResponse::Whole, StatusCode::OK) => (CheckVerdict::Yes, ""),
        // The client keeps, or combines, bytes of another version.
        (ExpectedResponse::Whole, StatusCode::NOT_MODIFIED | StatusCode::PARTIAL_CONTENT) => {
            (departs, "")
        }
        (ExpectedResponse::Ranges(ranges), StatusCode::PARTIAL_CONTENT)
            if has(response, ranges) =>
        {
            (CheckVerdict::Yes, "")
        }
        (ExpectedResponse::Ranges(_), StatusCode::PARTIAL_CONTENT) => {
            (CheckVerdict::Differs, "with other ranges")
        }
        (ExpectedResponse::Ranges(_), StatusCode::OK) => {
            (CheckVerdict::Differs, "all of the content")
        }
        (ExpectedResponse::Status(StatusCode::NOT_MODIFIED), StatusCode::NOT_MODIFIED) => {
            match response.headers().get(ETAG) {
                None => (CheckVerdict::Differs, "without the tag"),
                Some(_) => (CheckVerdict::Yes, ""),
            }
        }
        (ExpectedResponse::Status(expected), status) if *expected == status => {
            (CheckVerdict::Yes, "")
        }
        _ => (CheckVerdict::Differs, ""),
    }
}

/// Returns `true` if a single part has the bytes that its header field names. Several parts are compared by [`has`].
fn is_part(response: &Response<Bytes>) -> bool {
    match named(response) {
        Some((first, last)) => NEW
            .get(first..=last)
            .is_some_and(|part| response.body() == part),
        None => is_multipart(response),
    }
}

/// Returns `true` if a response has exactly one range, or each of several with its bytes.
fn has(response: &Response<Bytes>, ranges: &[(usize, usize)]) -> bool {
    if let [range] = ranges {
        return named(response) == Some(*range);
    }
    let text = String::from_utf8_lossy(response.body()).to_lowercase();
    let part = |(first, last): &(usize, usize)| {
        let line = format!("content-range: bytes {first}-{last}/{}", NEW.len());
        let content = NEW.get(*first..=*last).unwrap_or_default().to_lowercase();
        let after = text
            .split(&line)
            .nth(1)
            .and_then(|rest| rest.split("\r\n\r\n").nth(1));
        after.is_some_and(|rest| rest.starts_with(&format!("{content}\r\n--")))
    };
    is_multipart(response) && ranges.iter().all(part)
}

fn is_multipart(response: &Response<Bytes>) -> bool {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    kind.starts_with("multipart/byteranges")
}

/// Returns the range that a response names.
fn named(response: &Response<Bytes>) -> Option<(usize, usize)> {
    let text = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    let (range, length) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?)).filter(|_| length == NEW.len().to_string())
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;

    fn response(status: u16, field: Option<(&str, &str)>, body: &'static str) -> Response<Bytes> {
        let builder = field.into_iter().fold(
            Response::builder().status(status),
            |builder, (name, value)| builder.header(name, value),
        );
        builder.body(Bytes::from(body)).unwrap()
    }

    fn seen(status: u16, body: &'static str) -> SeenResource {
        SeenResource::of(response(status, None, body))
    }

    fn case(name: &str) -> CheckCase {
        cases::all()
            .unwrap()
            .into_iter()
            .find(|case| case.name == name)
            .unwrap()
    }

    #[track_caller]
    fn write(name: &str, status: u16, after: SeenResource, verdict: CheckVerdict) {
        let answer = CaseAnswer {
            response: response(status, None, ""),
            before: seen(200, NEW),
            after: Some(after),
        };
        assert_eq!(judge(&case(name), &answer).0, verdict, "{name}: {status}");
    }

    #[track_caller]
    fn read(name: &str, response: Response<Bytes>, verdict: CheckVerdict) {
        let shown = format!("{name}: {response:?}");
        let answer = CaseAnswer {
            response,
            before: seen(200, NEW),
            after: None,
        };
        assert_eq!(judge(&case(name), &answer).0, verdict, "{shown}");
    }

    #[test]
    fn a_write_is_judged_by_its_effect() {
        let rejected = "If-Match with an old tag rejects PUT";
        write(rejected, 412, seen(200, NEW), CheckVerdict::Yes);
        write(rejected, 409, seen(200, NEW), CheckVerdict::Differs);
        write(rejected, 200, seen(200, WRITTEN), CheckVerdict::No);
        write(rejected, 412, seen(200, WRITTEN), CheckVerdict::No);
        write(rejected, 200, seen(200, NEW), CheckVerdict::No);
        let passes = "If-Match with the current tag lets PUT pass";
        write(passes, 204, seen(200, WRITTEN), CheckVerdict::Yes);
        write(passes, 204, seen(200, NEW), CheckVerdict::No);
        write(passes, 501, seen(200, NEW), CheckVerdict::No);
        write(
            "If-Match: * lets PUT pass",
            501,
            seen(200, NEW),
            CheckVerdict::Differs,
        );
        write(
            "If-Match with the current tag lets DELETE pass",
            204,
            seen(404, ""),
            CheckVerdict::Yes,
        );
        let part = "a part does not replace the whole";
        write(part, 400, seen(200, NEW), CheckVerdict::Yes);
        write(
            part,
            204,
            seen(200, "01234FGHIJKLMNOPQRSTUVWXYZ"),
            CheckVerdict::Yes,
        );
        write(part, 204, seen(200, PART), CheckVerdict::No);
    }

    #[test]
    fn errors_with_different_bodies_are_the_same_absence() {
        assert!(seen(404, "request 1").is_same(&seen(404, "request 2")));
        assert!(!seen(404, "").is_same(&seen(200, "")) && !seen(404, "").is_same(&seen(500, "")));
        assert!(!seen(200, "a").is_same(&seen(200, "b")));
    }

    #[test]
    fn a_read_is_judged_by_its_bytes() {
        let cached = "If-None-Match with the current tag: 304 to GET";
        read(
            cached,
            response(304, Some(("etag", "\"a\"")), ""),
            CheckVerdict::Yes,
        );
        read(cached, response(304, None, ""), CheckVerdict::Differs);
        read(cached, response(200, None, NEW), CheckVerdict::Differs);
        read(cached, response(200, None, "other"), CheckVerdict::No);
        let stale = "If-Range with an old tag: all of the new content";
        read(stale, response(200, None, NEW), CheckVerdict::Yes);
        read(
            stale,
            response(206, Some(("content-range", "bytes 0-9/26")), "ABCDEFGHIJ"),
            CheckVerdict::No,
        );
        read(
            "If-None-Match with an old tag: the new content",
            response(304, None, ""),
            CheckVerdict::No,
        );
        let range = "a range from the start";
        read(
            range,
            response(206, Some(("content-range", "bytes 0-9/26")), "ABCDEFGHIJ"),
            CheckVerdict::Yes,
        );
        read(
            range,
            response(206, Some(("content-range", "bytes 0-9/26")), "BCDEFGHIJK"),
            CheckVerdict::No,
        );
        read(
            range,
            response(206, Some(("content-range", "bytes 0-1/26")), "AB"),
            CheckVerdict::Differs,
        );
        read(range, response(206, None, "ABCDEFGHIJ"), CheckVerdict::No);
        read(range, response(200, None, NEW), CheckVerdict::Differs);
        read(
            "a range is ignored for HEAD",
            response(206, Some(("content-range", "bytes 0-9/26")), ""),
            CheckVerdict::Differs,
        );
    }

    #[test]
    fn a_rejected_write_without_a_response_must_change_nothing() {
        let judge = |name: &str, after: Option<&SeenResource>| {
            unanswered(&case(name), &seen(200, NEW), after, "").0
        };
        let rejected = "If-Match with an old tag rejects PUT";
        let (kept, written) = (seen(200, NEW), seen(200, WRITTEN));
        assert_eq!(judge(rejected, Some(&kept)), CheckVerdict::Differs);
        assert_eq!(judge(rejected, Some(&written)), CheckVerdict::No);
        assert_eq!(judge(rejected, None), CheckVerdict::Differs);
        let passes = "If-Match with the current tag lets PUT pass";
        assert_eq!(judge(passes, Some(&written)), CheckVerdict::Differs);
    }

    #[test]
    fn several_ranges_need_all_parts() {
        let parts = "--x\r\nContent-Range: bytes 0-0/26\r\n\r\nA\r\n--x\r\nContent-Range: bytes 25-25/26\r\n\r\nZ\r\n--x--\r\n";
        let kind = Some(("content-type", "multipart/byteranges; boundary=x"));
        read("two ranges", response(206, kind, parts), CheckVerdict::Yes);
        let first = "--x\r\nContent-Range: bytes 0-0/26\r\n\r\nA\r\n--x--\r\n";
        read(
            "two ranges",
            response(206, kind, first),
            CheckVerdict::Differs,
        );
    }
}
