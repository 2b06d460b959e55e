//! A platform that ends an invocation after a number of listings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{Hook, Step};
use crate::name::ContainerName;

/// A [`Hook`] that ends an invocation after a number of listings.
#[derive(Clone, Debug, Default)]
pub struct Invocation {
    listings: Arc<AtomicUsize>,
    ended: Arc<Notify>,
}

impl Invocation {
    /// Allows this number of further listings.
    pub fn allow(&self, listings: usize) {
        self.listings.store(listings, Ordering::SeqCst);
    }

    /// Returns the number of listings left.
    pub fn left(&self) -> usize {
        self.listings.load(Ordering::SeqCst)
    }

    /// Waits until the invocation has ended.
    pub async fn ended(&self) {
        self.ended.notified().await;
    }
}

#[async_trait]
impl Hook for Invocation {
    async fn before(&self, step: Step, _: &ContainerName) {
        if step == Step::List && self.listings.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.ended.notify_one();
            std::future::pending::<()>().await;
        }
    }
}
