//! The right of a lock's holder to work, which ends on the holder's own clock.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;
use tokio::sync::watch;

use crate::error::Error;
use crate::pause::sleep_until;

/// The right to work under a lock, until it's lost. Clones share it.
///
/// It ends on this machine's clock before another client can take over, even if the network fails.
#[derive(Clone)]
pub struct Grant {
    fence: u64,
    id: Arc<str>,
    clock: Arc<dyn Clock>,
    state: watch::Receiver<GrantState>,
}

/// What the holder of a lock tells its grants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantState {
    /// End of the lock unless it is renewed, by the interval clock.
    pub(crate) deadline: Timestamp,
    /// `true` once the lock is lost or released.
    pub(crate) ended: bool,
}

impl Grant {
    /// Creates the grant of a lock that was acquired, and what its keeper changes.
    pub(crate) fn new(
        fence: u64,
        id: String,
        clock: Arc<dyn Clock>,
        deadline: Timestamp,
    ) -> (Self, watch::Sender<GrantState>) {
        let state = watch::Sender::new(GrantState {
            deadline,
            ended: false,
        });
        let grant = Self {
            fence,
            id: id.into(),
            clock,
            state: state.subscribe(),
        };
        (grant, state)
    }

    /// Returns the fencing token: larger for each new holder.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let lock = Client::new(Memory::default()).lock("a");
    /// let first = lock.with(|held| async move { held.fence() }).await?;
    /// assert!(lock.with(|held| async move { held.fence() }).await? > first);
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Returns the random id of this acquisition, for logs.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the time until the lock is lost unless it's renewed, or zero once it's lost or released.
    pub fn remaining(&self) -> Duration {
        let GrantState { deadline, ended } = *self.state.borrow();
        if ended {
            Duration::ZERO
        } else {
            self.clock.now().until(deadline)
        }
    }

    /// Returns `true` once the lock is lost or released.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let held = Client::new(Memory::default()).lock("a").acquire().await?;
    /// let grant = held.grant().clone();
    /// held.release().await?;
    /// assert!(grant.is_lost());
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Waits until the lock is lost or released.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let held = Client::new(Memory::default()).lock("a").acquire().await?;
    /// let grant = held.grant().clone();
    /// drop(held);
    /// grant.lost().await;
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        loop {
            let GrantState { deadline, ended } = *state.borrow_and_update();
            if ended || self.clock.now() >= deadline {
                return;
            }
            match select(
                pin!(state.changed()),
                pin!(sleep_until(&self.clock, deadline)),
            )
            .await
            {
                Either::Left((Ok(()), _)) | Either::Right(_) => {}
                // Without its task, nothing renews the lock.
                Either::Left((Err(_), _)) => return,
            }
        }
    }

    /// Runs work while the lock is held. Drops it when the lock is lost, without polling it again.
    ///
    /// # Errors
    /// `Lost` if the lock was lost before the work ended.
    ///
    /// ```
    /// # use ifmatch_client::{Client, Memory};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let held = Client::new(Memory::default()).lock("a").acquire().await?;
    /// assert_eq!(held.during(async { 7 }).await?, 7);
    /// # Ok::<(), ifmatch_client::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        let (mut work, mut lost) = (pin!(work), pin!(self.lost()));
        poll_fn(|cx| {
            // A timer may fire late, for example after the machine was suspended.
            if self.is_lost() || lost.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(Error::lost()));
            }
            let done = work.as_mut().poll(cx);
            // The process may have been stopped during the poll.
            done.map(|done| {
                if self.is_lost() {
                    Err(Error::lost())
                } else {
                    Ok(done)
                }
            })
        })
        .await
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("fence", &self.fence)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
