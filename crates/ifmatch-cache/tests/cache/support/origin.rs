//! The scripted origin.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tokio::sync::oneshot;
use tower::Service;

use super::{TestBody, response};

/// The origin couldn't be reached.
#[derive(Debug)]
pub(crate) struct Unreachable;

/// Responds to requests in scripted order, then with 599.
#[derive(Clone, Default)]
pub(crate) struct Origin(Arc<Inner>);

#[derive(Default)]
struct Inner {
    script: Mutex<VecDeque<Act>>,
    seen: Mutex<Vec<Parts>>,
    arrived: tokio::sync::Notify,
    /// Responds to requests after the script.
    each: Mutex<Option<Each>>,
}

type Each = Box<dyn Fn(&Parts) -> Response<TestBody> + Send>;

enum Act {
    Answer(Response<TestBody>),
    Fail,
    Panic,
    Held(oneshot::Receiver<Response<TestBody>>),
}

/// A delayed response. Dropping it makes the origin fail.
pub(crate) type Held = oneshot::Sender<Response<TestBody>>;

impl Origin {
    pub(crate) fn will(&self, status: u16, fields: &[(&str, &str)], body: &str) {
        self.will_answer(response(status, fields, body));
    }

    pub(crate) fn will_answer(&self, response: Response<TestBody>) {
        self.add(Act::Answer(response));
    }

    pub(crate) fn will_fail(&self) {
        self.add(Act::Fail);
    }

    pub(crate) fn will_panic(&self) {
        self.add(Act::Panic);
    }

    /// Delays the next response until the test sends it.
    pub(crate) fn will_wait(&self) -> Held {
        let (sender, receiver) = oneshot::channel();
        self.add(Act::Held(receiver));
        sender
    }

    /// Sets the responses to all requests after the script.
    pub(crate) fn will_each(&self, each: impl Fn(&Parts) -> Response<TestBody> + Send + 'static) {
        *self.0.each.lock().unwrap() = Some(Box::new(each));
    }

    fn add(&self, act: Act) {
        self.0.script.lock().unwrap().push_back(act);
    }

    /// Returns the requests received.
    pub(crate) fn seen(&self) -> Vec<Parts> {
        self.0.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.seen.lock().unwrap().len()
    }

    /// Waits for this number of requests, for an hour at most: in some tests, time is simulated.
    pub(crate) async fn reached(&self, count: usize) {
        let reached = async {
            loop {
                let arrived = self.0.arrived.notified();
                if self.count() >= count {
                    return;
                }
                arrived.await;
            }
        };
        tokio::time::timeout(Duration::from_hours(1), reached)
            .await
            .unwrap_or_else(|_| panic!("not within an hour: request {count}"));
    }
}

impl Service<Request<TestBody>> for Origin {
    type Response = Response<TestBody>;
    type Error = Unreachable;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Unreachable>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unreachable>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<TestBody>) -> Self::Future {
        let parts = request.into_parts().0;
        self.0.seen.lock().unwrap().push(parts.clone());
        self.0.arrived.notify_waiters();
        let each = || {
            self.0
                .each
                .lock()
                .unwrap()
                .as_ref()
                .map(|each| Act::Answer(each(&parts)))
        };
        let act = self.0.script.lock().unwrap().pop_front();
        let act = act.or_else(each);
        Box::pin(async move {
            match act {
                Some(Act::Answer(response)) => Ok(response),
                Some(Act::Fail) => Err(Unreachable),
                Some(Act::Panic) => panic!("the origin panics as instructed"),
                Some(Act::Held(held)) => held.await.map_err(|_| Unreachable),
                None => Ok(response(599, &[], "unexpected request")),
            }
        })
    }
}
