//! The requests that an account, or everyone, may send. Once `s3s` has selected an operation, and before it reads the body,
//! [`AccessCheck`] decides.

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, ORIGIN};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use ifmatch_blob::accounts::{Account, Accounts};
use s3s::access::{S3Access, S3AccessContext};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use crate::bodies::chunks;
use crate::bodies::document::ExpectedDigests;
use crate::bodies::incoming::IncomingBody;
use crate::error;
use crate::request_rules::{self, RequestOptions};
use crate::signature::{VerifiedAccount, parameters};

/// The operations that [take back](crate::signature::verified) the account of a signature that was removed.
const TAKING_LISTS: [&str; 2] = ["GetObject", "HeadObject"];

/// Marks a request without a signature, at a time when everyone may read.
#[derive(Clone, Copy)]
pub(crate) struct AnonymousRead;

/// Admits signed requests, and those that are [`AnonymousRead`] and read, if they ask for nothing that would be ignored.
pub(crate) struct AccessCheck {
    pub(crate) accounts: Accounts,
    /// A write may ask for encryption, which the disk or the store does.
    pub(crate) is_encrypted: bool,
}

#[async_trait::async_trait]
impl S3Access for AccessCheck {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        let name = request.s3_op().name().to_owned();
        let query = parameters(request.uri().query().unwrap_or_default());
        let account = self.account(request, &name, &query)?;
        let asked = RequestOptions {
            method: request.method(),
            query: &query,
            headers: request.headers(),
        };
        asked.check(&name, self.is_encrypted)?;
        request_rules::check_owner(&account, &query, request.headers())?;
        if matches!(&*name, "PutObject" | "UploadPart") {
            chunks::refuse_unannounced(request.headers())?;
        }
        if name == "DeleteObjects" {
            request_rules::require_checksum(request.headers())?;
        }
        if let Some(digests) = request_rules::document(&name) {
            let expected = ExpectedDigests::of(request.headers(), digests)?;
            if let Some(incoming) = request.extensions_mut().get::<IncomingBody>() {
                incoming.expect_document(expected);
            }
        }
        Ok(())
    }
}

impl AccessCheck {
    /// Returns the name of the account that signed a request, or of the default one for an anonymous read.
    fn account(
        &self,
        request: &mut S3AccessContext<'_>,
        operation: &str,
        query: &[(String, String)],
    ) -> S3Result<String> {
        let signed = request.credentials();
        let signed = signed.map(|credentials| credentials.access_key.clone());
        let verified = request.extensions_mut().get();
        let verified = verified.map(|VerifiedAccount(access_key)| access_key.clone());
        if verified.is_some() && !TAKING_LISTS.contains(&operation) {
            // Without its signature, the request would count as one of the default account.
            return Err(s3_error!(
                InvalidArgument,
                "only GetObject and HeadObject take a list of tags: send one tag"
            ));
        }
        if let Some(access_key) = signed.or(verified) {
            return Ok(access_key);
        }
        let reads = matches!(
            operation,
            "GetObject" | "HeadObject" | "ListObjects" | "ListObjectsV2" | "HeadBucket"
        );
        if !reads || request.extensions_mut().get::<AnonymousRead>().is_none() {
            return Err(error::unsigned());
        }
        // Otherwise, the author of a link could turn an object into a web page.
        if query.iter().any(|(name, _)| name.starts_with("response-")) {
            return Err(s3_error!(
                InvalidRequest,
                "only a signed request may choose header fields of the response"
            ));
        }
        let default = self.accounts.iter().next();
        Ok(default.map(Account::name).unwrap_or_default().to_owned())
    }
}

/// Refuses the form of a web page, which `s3s` reads before it knows if the request is signed, or may be sent without a signature.
pub(crate) fn refuse_form(head: &Parts) -> S3Result<()> {
    if head.method == Method::POST && head.headers.get_all(CONTENT_TYPE).iter().any(is_form) {
        return Err(s3_error!(
            NotImplemented,
            "uploads by HTML forms are not implemented: use PUT"
        ));
    }
    Ok(())
}

/// Refuses an OPTIONS request that isn't a browser's preflight. No origin is allowed here, so `s3s` answers a preflight
/// as unsigned (403).
pub(crate) fn refuse_options(head: &Parts) -> S3Result<()> {
    let is_preflight = [ORIGIN, ACCESS_CONTROL_REQUEST_METHOD]
        .iter()
        .all(|name| head.headers.contains_key(name));
    if head.method == Method::OPTIONS && !is_preflight {
        let message = "OPTIONS needs the header fields Origin and Access-Control-Request-Method of a preflight";
        let mut error = S3Error::with_message(S3ErrorCode::Custom("BadRequest".into()), message);
        error.set_status_code(StatusCode::BAD_REQUEST);
        return Err(error);
    }
    Ok(())
}

/// Returns `true` for the content type of a web page's form.
fn is_form(value: &HeaderValue) -> bool {
    let form = b"multipart/form-data";
    value
        .as_bytes()
        .trim_ascii_start()
        .get(..form.len())
        .is_some_and(|text| text.eq_ignore_ascii_case(form))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn the_form_of_a_web_page_is_refused() {
        let form = Request::post("/bucket")
            .header("content-type", "Multipart/Form-Data; boundary=a")
            .body(())
            .unwrap();
        assert_eq!(
            refuse_form(&form.into_parts().0).map_err(|error| error.code().clone()),
            Err(S3ErrorCode::NotImplemented)
        );
    }
}
