//! The threads that read and write the files of a cache folder.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::sync::oneshot;

use crate::body::folder::lock;

/// Number of threads. The blocking threads of tokio, up to 512, would each keep memory for buffers.
const THREADS: usize = 16;

type Work = Box<dyn FnOnce() + Send>;

/// A few threads that take work in turn. They end when this is dropped and no work is left.
#[derive(Debug)]
pub(crate) struct WorkerThreads(Sender<Work>);

impl WorkerThreads {
    /// Starts the threads.
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Work>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..THREADS {
            let receiver = Arc::clone(&receiver);
            let next = move || lock(&receiver).recv();
            let run = move || {
                while let Ok(work) = next() {
                    // The caller learns of a panic, since its sender is dropped.
                    drop(catch_unwind(AssertUnwindSafe(work)));
                }
            };
            thread::Builder::new()
                .name("cache-files".to_owned())
                .spawn(run)?;
        }
        Ok(Self(sender))
    }

    /// Runs work with files. Work that a thread has begun isn't cancelled with the future.
    pub(crate) fn run<T, W>(
        &self,
        work: W,
    ) -> impl Future<Output = io::Result<T>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> io::Result<T> + Send + 'static,
    {
        let (sender, result) = oneshot::channel();
        let answer = move || {
            if !sender.is_closed() {
                drop(sender.send(work()));
            }
        };
        let sent = self.0.send(Box::new(answer));
        async move {
            sent.map_err(|_| io::Error::other("the threads of the cache folder have ended"))?;
            result
                .await
                .map_err(|_| io::Error::other("the work with a cached file panicked"))?
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread::ThreadId;

    use super::*;

    #[tokio::test]
    async fn all_work_is_done_by_a_few_threads() {
        let threads = WorkerThreads::start().unwrap();
        let work: Vec<_> = (0..1_000)
            .map(|_| threads.run(|| Ok(thread::current().id())))
            .collect();
        let mut seen = HashSet::<ThreadId>::new();
        for work in work {
            seen.insert(work.await.unwrap());
        }
        assert!(seen.len() <= THREADS, "{} threads", seen.len());
    }

    #[tokio::test]
    async fn work_that_panics_fails_alone() {
        let threads = WorkerThreads::start().unwrap();
        for _ in 0..2 * THREADS {
            threads
                .run::<(), _>(|| panic!("as planned"))
                .await
                .unwrap_err();
        }
        threads.run(|| Ok(())).await.unwrap();
    }
}
