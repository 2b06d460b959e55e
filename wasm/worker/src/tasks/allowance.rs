//! Limit on the requests to R2 and objects that one request may make. Cloudflare limits them per invocation and fails
//! further ones. All work started by a request shares its allowance.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Error message for a request that was not sent because the allowance is used up.
pub(crate) const SPENT: &str = "this request has made all the requests that it may make";

/// Default number of requests, the limit of Cloudflare's free plan.
pub(crate) const USUAL: usize = 1_000;
/// Number of requests reserved for the end of a write, which releases its permit.
const RESERVE: usize = 20;

thread_local! {
    static MOST: Cell<usize> = const { Cell::new(USUAL) };
    /// Allowance of the current work.
    static CURRENT: RefCell<Option<Allowance>> = const { RefCell::new(None) };
}

/// Number of requests left.
#[derive(Clone, Debug)]
pub(crate) struct Allowance(Rc<Cell<usize>>);

/// Part of the allowance that a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// All but the reserve.
    Work,
    /// All, including the reserve.
    Reserve,
}

/// Makes an allowance current until dropped.
pub(crate) struct Current(Option<Allowance>);

/// Sets the number of requests allowed.
#[cfg(feature = "entry")]
pub(crate) fn allow(most: usize) {
    MOST.set(most);
}

/// Returns the number of requests that the current work may still make.
#[cfg(feature = "entry")]
pub(crate) fn left() -> usize {
    CURRENT.with_borrow(|current| {
        current.as_ref().map_or(usize::MAX, |Allowance(left)| left.get().saturating_sub(RESERVE))
    })
}

/// Takes a request from a share of the allowance. Returns `false` if none is left.
pub(crate) fn take(share: Share) -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_none_or(|allowance| allowance.take(share)))
}

impl Allowance {
    /// Returns the allowance of the current work, or a full one if there is none.
    pub(crate) fn of_current() -> Self {
        CURRENT.with_borrow(Clone::clone).unwrap_or_else(|| Self(Rc::new(Cell::new(MOST.get()))))
    }

    /// Makes this the current allowance until the returned guard is dropped.
    pub(crate) fn enter(&self) -> Current {
        Current(CURRENT.replace(Some(self.clone())))
    }

    fn take(&self, share: Share) -> bool {
        let kept = if share == Share::Reserve { 0 } else { RESERVE };
        let has_some = self.0.get() > kept;
        if has_some {
            self.0.set(self.0.get() - 1);
        }
        has_some
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

#[cfg(all(test, feature = "entry"))]
mod tests {
    use super::*;

    #[test]
    fn work_leaves_a_reserve_and_shares_with_what_it_begins() {
        allow(RESERVE + 2);
        assert_eq!(left(), usize::MAX, "nothing is being done");
        let allowance = Allowance::of_current();
        let entered = allowance.enter();
        assert_eq!(left(), 2);
        assert!(take(Share::Work));
        let begun = Allowance::of_current().enter();
        assert!(take(Share::Work) && !take(Share::Work));
        drop(begun);
        assert_eq!(left(), 0);
        for _ in 0..RESERVE {
            assert!(take(Share::Reserve));
        }
        assert!(!take(Share::Reserve));
        drop(entered);
        assert_eq!(left(), usize::MAX);
    }
}
