//! The console: pages for an operator's browser.
//!
//! It is a client of the gateway in the same process. Each page sends the requests that a program would send, with the token that
//! the operator has signed in with, and shows the responses. So nothing can be seen or changed here that the API wouldn't permit.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use askama::Template;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, SET_COOKIE};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use ifmatch_blob::dialect::Client;
use ifmatch_blob::documents::DocumentMemory;
use ifmatch_gateway_config::endpoint_paths::OVERVIEW;
use ifmatch_gateway_config::error::Error;
use ifmatch_http_server::{
    AnyBody, AnyHandler, RequestBody, RequestContext, RequestHandler, framing,
};
use sha2::{Digest, Sha256};

use crate::endpoints::overview::Overview;
use crate::state::AppState;
use crate::text::{self, Text};
use form::{FormMemory, RequestForm};
use history::History;
use inside::{InsideClient, Outage, RequestFailure};
use live::LiveStreams;
use session::{Session, Sessions};

pub(crate) mod history;

mod blobs;
mod form;
pub(crate) mod guard;
mod health;
mod inside;
mod live;
mod merging;
mod screens;
pub(crate) mod session;

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
const ICON: &str = include_str!("assets/favicon.svg");

/// The pages that a sign-in leads to.
const PAGES: [&str; 8] = [
    "/",
    "/conflicts",
    "/leases",
    "/leases/break",
    "/blobs",
    "/blob",
    "/blob/delete",
    "/cache",
];

/// Maximum size of the pages that are sent in any case, in bytes. So the overview is shown while other documents fill the memory.
const SMALL: usize = 64 << 10;
/// Memory for forms of operators who have signed in, in MiB.
const FORM_MEMORY: u32 = 64;
/// Memory for forms of all others, who can take none from them, in MiB.
const SIGN_IN_MEMORY: u32 = 2;

type PageResult = Result<PageAnswer, RequestFailure>;

/// The pages in front of a gateway.
pub struct Console {
    gateway: AnyHandler,
    state: Arc<AppState>,
    sessions: Sessions,
    streams: LiveStreams,
    history: Arc<History>,
    /// `true` if the listener can be reached from this machine only.
    is_local: bool,
    form_memory: FormMemory,
    sign_in_memory: FormMemory,
}

/// A page's response.
enum PageAnswer {
    Page(StatusCode, String),
    /// A page that occupies its memory until it is sent.
    Held(StatusCode, Bytes),
    /// To this path.
    Redirect(String),
    /// With a cookie, to this path.
    Cookie(HeaderValue, String),
    /// The content of a blob.
    Raw(Response<AnyBody>),
    /// The events of a live page.
    Live(AnyBody),
    /// The media type and the text of a file that pages load.
    Asset(&'static str, &'static str),
}

/// What all pages show.
#[expect(clippy::struct_excessive_bools, reason = "each shows a part of a page")]
struct PageFrame {
    screen: &'static str,
    has_blobs: bool,
    has_cache: bool,
    signed_in: bool,
    /// `false` if the operator's token may only read.
    can_write: bool,
    form_token: String,
    notice: Option<String>,
    /// The address at which the operator reaches this gateway.
    instance: Text,
}

/// The page that asks for a token.
#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    frame: PageFrame,
    problem: Option<&'static str>,
    /// The page that was asked for.
    to: Text,
}

/// The page about a request that failed.
#[derive(Template)]
#[template(path = "failure.html")]
struct FailurePage {
    frame: PageFrame,
    title: &'static str,
    /// The path of the request to the console, with what it was about.
    path: Text,
    status: u16,
    detail: Text,
    outage: Option<Outage>,
    now: f64,
    /// `true` if the request was to change something, so that it hasn't.
    is_change: bool,
    unsaved: Option<String>,
}

impl Console {
    /// Creates the pages in front of `gateway`, for a listener at `address`. Needs a runtime, on which it samples for the plots.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn new(
        gateway: AnyHandler,
        state: Arc<AppState>,
        address: SocketAddr,
    ) -> Result<Self, Error> {
        let sessions =
            Sessions::new(address.port()).map_err(|error| Error::runtime(error.to_string()))?;
        let history = Arc::<History>::default();
        tokio::spawn(history::watch(Arc::clone(&state), Arc::downgrade(&history)));
        Ok(Self {
            gateway,
            state,
            sessions,
            streams: live::streams(),
            history,
            is_local: address.ip().is_loopback(),
            form_memory: form::memory(FORM_MEMORY),
            sign_in_memory: form::memory(SIGN_IN_MEMORY),
        })
    }

    /// Checks a request, finds its session and its form, and responds to it.
    async fn answer(
        self: &Arc<Self>,
        request: Request<RequestBody>,
        context: RequestContext,
    ) -> PageResult {
        let (head, body) = request.into_parts();
        let access = self.state.access.load();
        guard::check(
            &head,
            context.is_secure(),
            self.is_local || access.is_open(),
        )?;
        if let Some(asset) = asset(head.uri.path()) {
            return Ok(asset);
        }
        let is_write = !head.method.is_safe();
        let client = context.client();
        if is_write && head.uri.path() == "/sign-in" {
            let form =
                RequestForm::read(&head, body, form::LONGEST, (&self.sign_in_memory, client))
                    .await?;
            return self.sign_in(&form, context).await;
        }
        if live::is_wanted(&head) {
            return live::follow(Arc::clone(self), head, context).map(PageAnswer::Live);
        }
        let asked = if is_write {
            "/"
        } else {
            head.uri.path_and_query().map_or("/", PathAndQuery::as_str)
        };
        let Some(session) = self.session(&head.headers) else {
            return Ok(self.sign_in_page(None, asked));
        };
        let longest = match head.uri.path() {
            "/blobs/new" => form::LONGEST_UPLOAD,
            "/blob/save" => form::LONGEST_TEXT,
            _ => form::LONGEST,
        };
        let form = RequestForm::read(&head, body, longest, (&self.form_memory, client)).await?;
        if is_write && !session.has_form_token(form.get("form_token")) {
            return Err(RequestFailure::new(
                StatusCode::FORBIDDEN,
                "This form is out of date. Load the page again.",
            ));
        }
        let visit = self.visit(session, head, form, context);
        let answer = match visit.respond().await {
            Err(failure) => Err(visit.explained(failure).await),
            answer => answer,
        };
        match answer {
            Err(failure)
                if failure.status == StatusCode::UNAUTHORIZED && failure.unsaved.is_none() =>
            {
                self.sessions.end(&visit.head.headers);
                let asked = if is_write {
                    None
                } else {
                    visit.head.uri.path_and_query()
                };
                let asked = asked.map_or("/", PathAndQuery::as_str);
                Ok(self.sign_in_page(
                    Some("This token is no longer accepted. Sign in again."),
                    asked,
                ))
            }
            answer => answer,
        }
    }

    /// Returns the session of a request, which everyone shares if no token is needed.
    fn session(&self, headers: &HeaderMap) -> Option<Session> {
        if self.state.access.load().is_open() {
            Some(self.sessions.open())
        } else {
            self.sessions.of(headers)
        }
    }

    /// Returns `true` if the token of a session may change anything.
    fn can_write(&self, session: &Session) -> bool {
        let access = self.state.access.load();
        let bearer = session
            .token
            .as_ref()
            .and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let headers = bearer
            .map(|bearer| (AUTHORIZATION, bearer))
            .into_iter()
            .collect();
        access.is_open() || access.check_token(&Method::PUT, &headers).is_ok()
    }

    /// Prepares the response to a request of a session.
    fn visit(
        &self,
        session: Session,
        head: Parts,
        form: RequestForm,
        context: RequestContext,
    ) -> OperatorVisit<'_> {
        let inside = InsideClient {
            gateway: &self.gateway,
            context,
            token: session.token.clone(),
            has_blobs: self.state.blobs.is_some(),
            counts_looks: false,
            is_live: live::is_wanted(&head),
        };
        OperatorVisit {
            console: self,
            inside,
            session,
            head,
            form,
        }
    }

    /// Begins a session with the token of a form, if the gateway accepts it.
    async fn sign_in(&self, form: &RequestForm, context: RequestContext) -> PageResult {
        let to = form.get("to");
        let (token, is_secure) = (form.get("token").trim().to_owned(), context.is_secure());
        let inside = InsideClient {
            gateway: &self.gateway,
            context,
            token: Some(token.clone()),
            has_blobs: false,
            counts_looks: true,
            is_live: false,
        };
        match inside.get(OVERVIEW).await {
            Ok(_) => Ok(PageAnswer::Cookie(
                self.sessions.begin(token, is_secure)?,
                own_page(to).to_owned(),
            )),
            // A token that no header field can hold is a bad request.
            Err(RequestFailure {
                status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST,
                ..
            }) => Ok(self.sign_in_page(
                Some("This token isn't accepted. Check it and try again."),
                to,
            )),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the page that asks for a token, with why the last one wasn't accepted.
    fn sign_in_page(&self, problem: Option<&'static str>, to: &str) -> PageAnswer {
        let page = SignInPage {
            frame: self.frame("sign-in", None),
            problem,
            to: own_page(to).into(),
        };
        // Writing to a string doesn't fail.
        PageAnswer::Page(StatusCode::UNAUTHORIZED, page.render().unwrap_or_default())
    }

    /// Takes memory for a page until it is sent. A small page takes none.
    fn memory(&self, client: IpAddr, page: &str) -> Result<DocumentMemory, RequestFailure> {
        let mut memory = self.state.documents.begin(Some(Client(client)));
        let bytes = if page.len() > SMALL { page.len() } else { 0 };
        memory.grow(bytes).map_err(|_| {
            let detail =
                "The gateway is busy with other requests. Load the page again in a few seconds.";
            RequestFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })?;
        Ok(memory)
    }

    /// Returns what all pages show, without a notice and an address.
    fn frame(&self, screen: &'static str, session: Option<&Session>) -> PageFrame {
        PageFrame {
            screen,
            has_blobs: self.state.blobs.is_some(),
            has_cache: self.state.cache.is_some(),
            signed_in: session.is_some_and(|session| session.token.is_some()),
            can_write: session.is_some_and(|session| self.can_write(session)),
            form_token: session
                .map(|session| session.form_token.clone())
                .unwrap_or_default(),
            notice: None,
            instance: Text::default(),
        }
    }

    /// Shows why a request failed, on the screen that it was for.
    fn failed(
        &self,
        failure: RequestFailure,
        head: &FailedRequest,
        session: Option<&Session>,
    ) -> PageAnswer {
        let RequestFailure {
            status,
            detail,
            unsaved,
            outage,
            about,
        } = failure;
        let (screen, title) = titles(head.uri.path(), head.is_change, status);
        let page = FailurePage {
            frame: PageFrame {
                instance: head.instance.clone(),
                ..self.frame(screen, session)
            },
            title,
            path: about.unwrap_or_else(|| head.uri.path().into()),
            status: status.as_u16(),
            detail: detail.into(),
            outage: outage.map(|outage| *outage),
            now: screens::now(),
            is_change: head.is_change,
            unsaved,
        };
        // Writing to a string doesn't fail.
        PageAnswer::Page(status, page.render().unwrap_or_default())
    }
}

/// A request of an operator.
struct OperatorVisit<'a> {
    console: &'a Console,
    inside: InsideClient<'a>,
    session: Session,
    head: Parts,
    form: RequestForm,
}

/// What a page about a failed request shows of it.
struct FailedRequest {
    uri: Uri,
    instance: Text,
    is_change: bool,
}

/// Returns the screen and the title of a page about a failure.
fn titles(path: &str, is_change: bool, status: StatusCode) -> (&'static str, &'static str) {
    match path {
        _ if status == StatusCode::MISDIRECTED_REQUEST => ("failure", "Unknown host name"),
        "/" => ("overview", "The overview can't be read"),
        "/conflicts" => ("conflicts", "Conflicts can't be read"),
        "/leases/break" if is_change => ("leases", "The lease wasn't broken"),
        "/leases" | "/leases/break" => ("leases", "Leases can't be read"),
        "/blob/save" => ("blobs", "The blob wasn't saved"),
        "/blob/delete" if is_change => ("blobs", "The blob wasn't deleted"),
        "/blobs/new" => ("blobs", "The blob wasn't created"),
        "/blob" | "/raw" | "/blob/delete" if status == StatusCode::NOT_FOUND => {
            ("blobs", "There's no such blob")
        }
        "/blobs" if status == StatusCode::NOT_FOUND => ("blobs", "There's no such container"),
        "/blob" | "/raw" | "/blob/delete" => ("blobs", "The blob can't be read"),
        "/blobs" => ("blobs", "Blobs can't be listed"),
        "/cache" => ("cache", "The cache can't be read"),
        "/cache/purge" => ("cache", "Nothing was purged"),
        _ if status == StatusCode::NOT_FOUND => ("failure", "There's no such page"),
        _ => ("failure", "That didn't work"),
    }
}

impl OperatorVisit<'_> {
    /// Adds to a failure what the request was about, and what is down, if anything is. The overview needs the same token.
    async fn explained(&self, failure: RequestFailure) -> RequestFailure {
        let about = ["path", "prefix", "url", "value"].map(|name| self.form.get(name));
        let about = about
            .into_iter()
            .find(|value| !value.is_empty())
            .map(Text::from);
        let failure = RequestFailure { about, ..failure };
        if !failure.status.is_server_error() {
            return failure;
        }
        let state = self.inside.json::<Overview>(OVERVIEW).await.ok();
        let outage = state
            .and_then(|state| {
                Some(Outage {
                    component: state.component?,
                    reason: state.reason?,
                    since: state.since,
                })
            })
            .map(Box::new);
        RequestFailure { outage, ..failure }
    }

    /// Responds with the page at the path, or carries out the change.
    async fn respond(&self) -> PageResult {
        let method = if self.head.method == Method::HEAD {
            &Method::GET
        } else {
            &self.head.method
        };
        match (method, self.head.uri.path()) {
            (&Method::GET, "/") => self.overview().await,
            (&Method::GET, "/conflicts") => self.conflicts().await,
            (&Method::GET, "/leases") => self.leases().await,
            (&Method::GET, "/leases/break") => self.ask_to_break().await,
            (&Method::POST, "/leases/break") => self.break_lease().await,
            (&Method::GET, "/blobs") => self.blobs().await,
            (&Method::POST, "/blobs/new") => self.create_blob().await,
            (&Method::GET, "/blob") => self.blob().await,
            (&Method::POST, "/blob/save") => self.save_blob().await,
            (&Method::GET, "/blob/delete") => self.ask_to_delete().await,
            (&Method::POST, "/blob/delete") => self.delete_blob().await,
            (&Method::GET, "/raw") => self.raw().await,
            (&Method::GET, "/cache") => self.cache().await,
            (&Method::POST, "/cache/purge") => self.purge().await,
            (&Method::POST, "/sign-out") => {
                self.console.sessions.end(&self.head.headers);
                Ok(PageAnswer::Redirect("/".to_owned()))
            }
            _ => Err(RequestFailure::new(
                StatusCode::NOT_FOUND,
                "There's no such page.",
            )),
        }
    }

    /// Returns what only this session's own links have for a path, so no other link can name one in a notice.
    fn proof(&self, path: &str) -> String {
        let digest = Sha256::digest(format!("{}\n{path}", self.session.form_token));
        let start = digest
            .first_chunk::<8>()
            .map_or(0, |start| u64::from_be_bytes(*start));
        format!("{start:016x}")
    }

    /// Returns what all pages show, with the notice of what was done before.
    fn frame(&self, screen: &'static str) -> PageFrame {
        // By name, so no link can make the console say anything else.
        let notice = match self.form.get("done") {
            "broken" => Some(match self.form.get("path") {
                path if self.form.get("proof") == self.proof(path) => {
                    format!("Broke the lease on {}.", Text::from(path))
                }
                _ => "Broke the lease.".to_owned(),
            }),
            "created" => Some("Blob created.".to_owned()),
            "saved" => Some("Blob saved.".to_owned()),
            "deleted" => Some("Blob deleted.".to_owned()),
            "purged" => Some(match self.form.get("count").parse::<u64>() {
                Ok(0) => "Nothing was stored there, so nothing was purged.".to_owned(),
                Ok(count) => format!("Purged {}.", text::counted(count, "response")),
                Err(_) => "Purged.".to_owned(),
            }),
            _ => None,
        };
        let instance = instance(&self.head.uri, &self.head.headers);
        PageFrame {
            notice,
            instance,
            ..self.console.frame(screen, Some(&self.session))
        }
    }
}

/// Returns the address at which the operator reaches this gateway.
fn instance(uri: &Uri, headers: &HeaderMap) -> Text {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    Text::from(
        uri.authority()
            .map(Authority::as_str)
            .or(host)
            .unwrap_or_default(),
    )
}

/// Returns the path and query of a page to show after the sign-in: of the console itself, and the first page otherwise.
fn own_page(asked: &str) -> &str {
    let path = asked.split('?').next().unwrap_or_default();
    let is_text = asked.bytes().all(|byte| byte.is_ascii_graphic());
    if is_text && PAGES.contains(&path) {
        asked
    } else {
        PAGES[0]
    }
}

/// Returns a page with status 200.
fn page(page: &impl Template) -> PageResult {
    Ok(PageAnswer::Page(StatusCode::OK, render(page)?))
}

/// Returns a page as text.
fn render(page: &impl Template) -> Result<String, RequestFailure> {
    page.render()
        .map_err(|error| RequestFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// Returns the file at a path that pages load.
fn asset(path: &str) -> Option<PageAnswer> {
    let (media_type, text) = match path {
        "/console.css" => ("text/css; charset=utf-8", STYLE),
        "/console.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/favicon.svg" | "/favicon.ico" => ("image/svg+xml", ICON),
        _ => return None,
    };
    Some(PageAnswer::Asset(media_type, text))
}

/// Returns a body with all of these bytes.
fn whole(bytes: Bytes) -> AnyBody {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

impl RequestHandler for Console {
    type Body = AnyBody;

    async fn handle(
        self: Arc<Self>,
        mut request: Request<RequestBody>,
        context: RequestContext,
    ) -> Response<AnyBody> {
        if let Some(rejected) = framing::reject(&mut request) {
            return rejected.map(whole);
        }
        let is_head = request.method() == Method::HEAD;
        let instance = instance(request.uri(), request.headers());
        let head = FailedRequest {
            uri: request.uri().clone(),
            instance,
            is_change: !request.method().is_safe(),
        };
        let (session, client) = (self.session(request.headers()), context.client());
        let answer = self
            .answer(request, context)
            .await
            .and_then(|answer| match answer {
                // The response to a change isn't refused: it may have what the operator wrote.
                PageAnswer::Page(status, page) if !head.is_change => Ok(PageAnswer::Held(
                    status,
                    self.memory(client, &page)?.hold(page),
                )),
                answer => Ok(answer),
            });
        let answer = answer.unwrap_or_else(|failure| self.failed(failure, &head, session.as_ref()));
        let own = |status, media_type: &'static str, body: Bytes| {
            let sent = if is_head { Bytes::new() } else { body.clone() };
            let mut response = Response::new(whole(sent));
            *response.status_mut() = status;
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
            response
                .headers_mut()
                .insert(CONTENT_LENGTH, body.len().into());
            response
        };
        let to = |path: &str| {
            let mut response = own(
                StatusCode::SEE_OTHER,
                "text/html; charset=utf-8",
                Bytes::new(),
            );
            response.headers_mut().extend(
                HeaderValue::try_from(path)
                    .ok()
                    .map(|path| (LOCATION, path)),
            );
            response
        };
        let mut response = match answer {
            PageAnswer::Page(status, text) => own(status, "text/html; charset=utf-8", text.into()),
            PageAnswer::Held(status, text) => own(status, "text/html; charset=utf-8", text),
            PageAnswer::Asset(media_type, text) => own(StatusCode::OK, media_type, text.into()),
            PageAnswer::Redirect(path) => to(&path),
            PageAnswer::Cookie(cookie, path) => {
                let mut response = to(&path);
                response.headers_mut().insert(SET_COOKIE, cookie);
                response
            }
            PageAnswer::Live(events) => {
                let mut response = Response::new(events);
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static(live::EVENT_STREAM));
                response
            }
            PageAnswer::Raw(mut response) => {
                guard::sandbox(response.headers_mut());
                return response;
            }
        };
        guard::protect(response.headers_mut());
        response
    }
}

#[cfg(test)]
mod tests {
    use super::own_page;

    #[test]
    fn a_sign_in_leads_to_a_page_of_the_console_only() {
        for own in [
            "/",
            "/leases?prefix=docs",
            "/blob?path=a%2Fb",
            "/cache?url=http%3A%2F%2Fa%2F",
        ] {
            assert_eq!(own_page(own), own);
        }
        for other in [
            "",
            "//evil.example/",
            "/\\evil.example",
            "https://evil.example/",
            "/leases?a\r\nb",
            "/raw?path=a",
            "/\t/x",
        ] {
            assert_eq!(own_page(other), "/", "{other:?}");
        }
    }
}
