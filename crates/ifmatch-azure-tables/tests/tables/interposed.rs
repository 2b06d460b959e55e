//! A store that runs an action between two steps of a request.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ifmatch_blob::name::ContainerName;

use crate::support::{Client, Fixture};
use ifmatch_blob::test_util::{Hook, Hooked, Step};

/// The step before which the action runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before an entity is opened.
    Open,
    /// Before an entity is written or deleted.
    Write,
    /// Before entities are listed.
    List,
    /// Before a table is created or deleted.
    Table,
}

type Act = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;

/// Runs an action at a moment.
#[derive(Clone)]
pub(crate) struct Interposed {
    moment: Moment,
    act: Arc<Mutex<(usize, Act)>>,
}

impl fmt::Debug for Interposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interposed").field("moment", &self.moment).finish_non_exhaustive()
    }
}

impl Fixture {
    /// Returns a client with requests that the action interrupts, at most `times` times.
    pub(crate) fn interrupted<F>(
        &self,
        moment: Moment,
        times: usize,
        act: impl Fn(Client) -> F + Send + 'static,
    ) -> Client
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let client = self.client.clone();
        let act: Act = Box::new(move || Box::pin(act(client.clone())));
        let act = Arc::new(Mutex::new((times, act)));
        let hook = Interposed { moment, act };
        Client::over(Hooked { inner: Arc::new(self.store.clone()), hook }, &self.clock)
    }
}

#[async_trait]
impl Hook for Interposed {
    async fn before(&self, step: Step, container: &ContainerName) {
        let of_tables = container.as_str().starts_with("-tables");
        let moment = match step {
            Step::Put | Step::Delete if of_tables => Moment::Table,
            Step::Open | Step::List if of_tables => return,
            Step::Put | Step::Delete => Moment::Write,
            Step::Open => Moment::Open,
            Step::List => Moment::List,
        };
        let acting = {
            let mut act = self.act.lock().expect("no panic");
            let due = moment == self.moment && act.0 > 0;
            act.0 -= usize::from(due);
            due.then(|| (act.1)())
        };
        if let Some(acting) = acting {
            acting.await;
        }
    }
}
