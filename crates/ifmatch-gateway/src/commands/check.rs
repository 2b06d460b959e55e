//! `ifmatch check`: asks a server, by requests and races, whether it honours conditions.

use std::io::{Write, stdout};

use bytes::Bytes;
use clap::Args;
use futures_util::future::join_all;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use ifmatch_client::Http;
use ifmatch_core::EntityTag;
use ifmatch_runtime::nonce;

use super::guard::server;
use super::runtime::block_on;
use crate::error::Error;

/// Exit code for a server that does not honour conditions.
const NOT_HONOURED: u8 = 3;
/// Number of races of each kind.
const ROUNDS: usize = 10;
/// Number of writers in a race.
const WRITERS: usize = 16;

/// `ifmatch check …`
#[derive(Args)]
pub(crate) struct CheckArgs {
    /// URL of a folder or container where the check may write resources with names of its own, and delete them.
    url: String,

    /// Bearer token, if the server requires one.
    #[arg(long, env = "IFMATCH_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

pub(crate) const EXAMPLES: &str = "\
Examples:
  ifmatch check http://127.0.0.1:8080/box
  ifmatch check https://api.example.com/documents --token \"$(cat token)\"

Exit codes:
  0  the server honours conditions
  1  the server cannot be reached, or rejects the requests
  2  invalid flags
  3  the server does not honour conditions: its clients can lose updates";

/// A line of the table.
struct Finding {
    question: &'static str,
    holds: bool,
    detail: String,
}

/// The server, and one resource on it.
struct Resource<'a> {
    server: &'a Http,
    key: String,
}

/// Checks a server, prints a table, and returns the exit code.
///
/// # Errors
/// Fails if the server does not answer, or cannot store anything.
pub(crate) fn run(args: &CheckArgs) -> Result<u8, Error> {
    let server = server(&args.url, args.token.as_deref())?;
    let findings = block_on(async {
        let resource = Resource::new(&server)?;
        let mut findings = resource.conditions().await?;
        findings.push(races(&server, "of 16 creators, one succeeds", true).await?);
        findings.push(races(&server, "of 16 writers of one version, one succeeds", false).await?);
        Ok(findings)
    })?;
    let print = |line: String| {
        writeln!(stdout().lock(), "{line}").map_err(|error| Error::runtime(format!("cannot write: {error}")))
    };
    print(format!("{:<46}  {:<6}  {}", "CHECK", "RESULT", "DETAIL"))?;
    for Finding { question, holds, detail } in &findings {
        print(format!("{question:<46}  {:<6}  {detail}", if *holds { "yes" } else { "NO" }))?;
    }
    Ok(if findings.iter().all(|finding| finding.holds) { 0 } else { NOT_HONOURED })
}

impl<'a> Resource<'a> {
    fn new(server: &'a Http) -> Result<Self, Error> {
        let random = nonce().map_err(|error| Error::runtime(error.to_string()))?;
        Ok(Self { server, key: format!("ifmatch-check-{random:016x}") })
    }

    async fn send(
        &self,
        method: Method,
        condition: Option<(HeaderName, &str)>,
        body: &str,
    ) -> Result<Response<Bytes>, Error> {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = condition {
            let value = HeaderValue::from_str(value).map_err(|error| Error::runtime(error.to_string()))?;
            headers.insert(name, value);
        }
        let sent = self.server.send(method, &self.key, headers, Bytes::copy_from_slice(body.as_bytes())).await;
        sent.map_err(|error| Error::runtime(error.to_string()))
    }

    async fn put(&self, condition: Option<(HeaderName, &str)>, body: &str) -> Result<StatusCode, Error> {
        self.send(Method::PUT, condition, body).await.map(|response| response.status())
    }

    async fn get(&self) -> Result<Response<Bytes>, Error> {
        self.send(Method::GET, None, "").await
    }

    /// Returns the current tag, if it is a strong one.
    async fn tag(&self) -> Result<Option<String>, Error> {
        let response = self.get().await?;
        let tag = response.headers().get(ETAG).and_then(|tag| EntityTag::from_header(tag).ok());
        Ok(tag.filter(|tag| !tag.is_weak()).map(|tag| tag.to_string()))
    }

    /// Returns the finding of a write that must be rejected, and leave the content as it is.
    async fn rejects(
        &self,
        question: &'static str,
        method: Method,
        condition: (HeaderName, &str),
    ) -> Result<Finding, Error> {
        let before = self.get().await?;
        let status = self.send(method, Some(condition), "unwanted").await?.status();
        let after = self.get().await?;
        let same = (before.status(), before.body()) == (after.status(), after.body());
        let detail = if same { status.to_string() } else { format!("{status}, and the content has changed") };
        Ok(Finding { question, holds: !status.is_success() && same, detail })
    }

    /// Checks each condition, one request after another.
    async fn conditions(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        let absent = (IF_MATCH, "\"absent\"");
        findings.push(self.rejects("If-Match rejects an absent resource", Method::PUT, absent).await?);
        let created = self.put(Some((IF_NONE_MATCH, "*")), "one").await?;
        if matches!(created, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED) {
            return Err(Error::runtime(format!("the server responded {created} to PUT of {}", self.key)));
        }
        let finding = |question, holds, detail: String| Finding { question, holds, detail };
        findings.push(finding("If-None-Match: * creates", created.is_success(), created.to_string()));
        let exists = "If-None-Match: * rejects an existing resource";
        findings.push(self.rejects(exists, Method::PUT, (IF_NONE_MATCH, "*")).await?);
        let tag = self.tag().await?;
        let shown = tag.clone().unwrap_or_else(|| "none".to_owned());
        findings.push(finding("GET names a strong ETag", tag.is_some(), shown));
        if let Some(tag) = tag {
            let cached = self.send(Method::GET, Some((IF_NONE_MATCH, &tag)), "").await?.status();
            findings.push(finding("If-None-Match: 304", cached == StatusCode::NOT_MODIFIED, cached.to_string()));
            let weak = format!("W/{tag}");
            findings.push(self.rejects("If-Match rejects a weak tag", Method::PUT, (IF_MATCH, &weak)).await?);
            let replaced = self.put(Some((IF_MATCH, &tag)), "two").await?;
            findings.push(finding("If-Match with the tag replaces", replaced.is_success(), replaced.to_string()));
            let next = self.tag().await?;
            let differs = next.is_some() && next.as_ref() != Some(&tag);
            findings.push(finding("a write changes the tag", differs, next.unwrap_or_else(|| "none".to_owned())));
            findings.push(self.rejects("If-Match rejects an old tag", Method::PUT, (IF_MATCH, &tag)).await?);
            let old = "If-Match rejects an old tag of DELETE";
            findings.push(self.rejects(old, Method::DELETE, (IF_MATCH, &tag)).await?);
        }
        self.remove().await?;
        Ok(findings)
    }

    async fn remove(&self) -> Result<(), Error> {
        let tag = self.tag().await?;
        self.send(Method::DELETE, tag.as_deref().map(|tag| (IF_MATCH, tag)), "").await.map(drop)
    }
}

/// Lets many writers race with one condition, several times. One of them must succeed, and the content must be its own.
async fn races(server: &Http, question: &'static str, create: bool) -> Result<Finding, Error> {
    let (mut holds, mut winners) = (true, Vec::new());
    for _ in 0..ROUNDS {
        let resource = Resource::new(server)?;
        let condition = if create {
            None
        } else {
            resource.put(None, "first").await?;
            resource.tag().await?
        };
        let condition = match &condition {
            None if create => (IF_NONE_MATCH, "*"),
            None => return Ok(Finding { question, holds: false, detail: "no strong tag to race for".to_owned() }),
            Some(tag) => (IF_MATCH, tag.as_str()),
        };
        let writer = |number: usize| {
            let (resource, condition) = (&resource, condition.clone());
            async move { resource.put(Some(condition), &format!("writer {number}")).await }
        };
        let statuses = join_all((0..WRITERS).map(writer)).await;
        let statuses = statuses.into_iter().collect::<Result<Vec<_>, _>>()?;
        let won: Vec<usize> = (0..WRITERS).filter(|number| statuses[*number].is_success()).collect();
        let content = resource.get().await?.into_body();
        holds &= matches!(won[..], [winner] if content == format!("writer {winner}"));
        winners.push(won.len().to_string());
        resource.remove().await?;
    }
    Ok(Finding { question, holds, detail: format!("winners of {ROUNDS} races: {}", winners.join(" ")) })
}
