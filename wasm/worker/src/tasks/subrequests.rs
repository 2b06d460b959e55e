//! Budget of subrequests: requests to R2 and Durable Objects on behalf of one request.
//!
//! Cloudflare limits them per invocation and fails further ones. All work that a request starts shares its budget.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

/// Default budget: the limit of Cloudflare's free plan.
pub(crate) const DEFAULT: usize = 1_000;
/// Number of subrequests kept for swaps of records, so a write can release its permit at the end.
const RESERVE: usize = 20;

thread_local! {
    /// Budget of a new request.
    static LIMIT: Cell<usize> = const { Cell::new(DEFAULT) };
    /// Budget of the work being polled.
    static CURRENT: RefCell<Option<SubrequestBudget>> = const { RefCell::new(None) };
}

/// The subrequest wasn't sent because the budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this request has used up its budget of requests to R2 and Durable Objects")]
pub(crate) struct BudgetSpent;

/// Number of subrequests left. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SubrequestBudget(Rc<Cell<usize>>);

/// Part of the budget that a subrequest may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetShare {
    /// All but the reserve.
    Work,
    /// All, including the reserve.
    Reserve,
}

/// A future that draws on a budget.
pub(crate) struct Budgeted<T> {
    budget: SubrequestBudget,
    work: LocalBoxFuture<'static, T>,
}

/// Sets the budget of requests that arrive from now on.
#[cfg(feature = "entry")]
pub(crate) fn set_limit(limit: usize) {
    LIMIT.set(limit);
}

/// Returns the number of subrequests that the current work may still make. Without any, there is no limit.
#[cfg(feature = "entry")]
pub(crate) fn left() -> usize {
    CURRENT.with_borrow(|current| {
        current
            .as_ref()
            .map_or(usize::MAX, |SubrequestBudget(left)| {
                left.get().saturating_sub(RESERVE)
            })
    })
}

/// Takes one subrequest from the current budget.
pub(crate) fn take(share: BudgetShare) -> Result<(), BudgetSpent> {
    CURRENT.with_borrow(|current| current.as_ref().map_or(Ok(()), |budget| budget.take(share)))
}

impl SubrequestBudget {
    /// Returns the budget of the current work, or a full one for a new request.
    pub(crate) fn of_current() -> Self {
        CURRENT
            .with_borrow(Clone::clone)
            .unwrap_or_else(|| Self(Rc::new(Cell::new(LIMIT.get()))))
    }

    /// Makes a future draw on this budget.
    pub(crate) fn for_work<T>(self, work: impl Future<Output = T> + 'static) -> Budgeted<T> {
        Budgeted {
            budget: self,
            work: work.boxed_local(),
        }
    }

    fn take(&self, share: BudgetShare) -> Result<(), BudgetSpent> {
        let kept = if share == BudgetShare::Reserve {
            0
        } else {
            RESERVE
        };
        if self.0.get() <= kept {
            return Err(BudgetSpent);
        }
        self.0.set(self.0.get() - 1);
        Ok(())
    }
}

impl<T> Future for Budgeted<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        /// Restores the previous budget, also when the work panics.
        struct Restore(Option<SubrequestBudget>);

        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }

        let _restore = Restore(CURRENT.replace(Some(self.budget.clone())));
        self.work.poll_unpin(context)
    }
}

#[cfg(all(test, feature = "entry"))]
mod tests {
    use super::*;

    #[test]
    fn work_leaves_a_reserve_and_shares_its_budget_with_what_it_starts() {
        set_limit(RESERVE + 2);
        assert_eq!(left(), usize::MAX, "no work is running");
        let work = SubrequestBudget::of_current().for_work(async {
            assert_eq!(left(), 2);
            assert_eq!(take(BudgetShare::Work), Ok(()));
            SubrequestBudget::of_current()
                .for_work(async {
                    assert_eq!(
                        (take(BudgetShare::Work), take(BudgetShare::Work)),
                        (Ok(()), Err(BudgetSpent))
                    );
                })
                .await;
            assert_eq!(left(), 0);
            for _ in 0..RESERVE {
                assert_eq!(take(BudgetShare::Reserve), Ok(()));
            }
            assert_eq!(take(BudgetShare::Reserve), Err(BudgetSpent));
        });
        assert!(work.now_or_never().is_some());
        assert_eq!(left(), usize::MAX);
    }
}
