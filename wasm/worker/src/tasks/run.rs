//! Runs work in the very call by which the runtime brings what it waits for. To ask for another call afterwards, as is
//! usual, takes longer than most of the work does.
//!
//! What one piece of work wakes in another is run after the first has come to where it waits, never within it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use wasm_bindgen_futures::spawn_local;
use worker::send::SendWrapper;

use super::allowance::Allowance;

thread_local! {
    /// What can go on, in its order.
    static READY: RefCell<VecDeque<Arc<Task>>> = const { RefCell::new(VecDeque::new()) };
    /// Whether it will be seen to.
    static IS_SEEN_TO: Cell<bool> = const { Cell::new(false) };
}

/// Work under way.
struct Task {
    /// None: it is being done, or was.
    work: SendWrapper<RefCell<Option<LocalBoxFuture<'static, ()>>>>,
    is_ready: AtomicBool,
    allowance: SendWrapper<Allowance>,
}

/// Begins work, up to where it has to wait. Only for what the runtime itself calls.
#[cfg(feature = "entry")]
pub(super) fn now(work: impl Future<Output = ()> + 'static) {
    let task = Task::new(work);
    called(|| task.wake());
}

/// Begins work, once whoever calls this has come to an end or to where it waits.
pub(super) fn later(work: impl Future<Output = ()> + 'static) {
    Task::new(work).wake();
}

/// Does what may wake work, and then that work. Only for what the runtime itself calls, which does so while nothing else runs.
pub(super) fn called(wake: impl FnOnce()) {
    /// Work may end by an exception of the runtime, which leaves the rest to the next call.
    struct Seen;

    impl Drop for Seen {
        fn drop(&mut self) {
            IS_SEEN_TO.set(false);
        }
    }

    IS_SEEN_TO.set(true);
    let seen = Seen;
    wake();
    while let Some(task) = READY.with_borrow_mut(VecDeque::pop_front) {
        task.run();
    }
    drop(seen);
}

impl Task {
    fn new(work: impl Future<Output = ()> + 'static) -> Arc<Self> {
        let work = SendWrapper::new(RefCell::new(Some(work.boxed_local())));
        let allowance = SendWrapper::new(Allowance::of_current());
        Arc::new(Self { work, is_ready: AtomicBool::new(false), allowance })
    }

    fn run(self: Arc<Self>) {
        self.is_ready.store(false, Ordering::Relaxed);
        // What unwinds is dropped, as what has ended.
        let Some(mut work) = self.work.0.take() else { return };
        let waker = Waker::from(Arc::clone(&self));
        let _current = self.allowance.0.enter();
        if work.poll_unpin(&mut Context::from_waker(&waker)).is_pending() {
            self.work.0.replace(Some(work));
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.is_ready.swap(true, Ordering::Relaxed) {
            return;
        }
        READY.with_borrow_mut(|ready| ready.push_back(self));
        if !IS_SEEN_TO.replace(true) {
            spawn_local(async { called(|| ()) });
        }
    }
}
