//! How many requests to R2 and objects one request may make: Cloudflare bounds them for each invocation, and fails those beyond.
//! All work that a request began shares its allowance.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What an answer says where the request was not made, since none is left.
pub(crate) const SPENT: &str = "this request has made all the requests that it may make";

/// How many are allowed if nothing else is set: those of Cloudflare's free plan.
pub(crate) const USUAL: usize = 1_000;
/// How many are kept for what ends a write: its permit is given back by them.
const RESERVE: usize = 20;

thread_local! {
    static MOST: Cell<usize> = const { Cell::new(USUAL) };
    /// That of the work which is being done.
    static CURRENT: RefCell<Option<Allowance>> = const { RefCell::new(None) };
}

/// The requests that are left.
#[derive(Clone, Debug)]
pub(crate) struct Allowance(Rc<Cell<usize>>);

/// What a request may be taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// All but the reserve.
    Work,
    /// The reserve as well.
    Reserve,
}

/// The work that is being done has this allowance until it is dropped.
pub(crate) struct Current(Option<Allowance>);

/// Sets how many requests are allowed.
#[cfg(feature = "entry")]
pub(crate) fn allow(most: usize) {
    MOST.set(most);
}

/// How many requests the work that is being done may make.
#[cfg(feature = "entry")]
pub(crate) fn left() -> usize {
    CURRENT.with_borrow(|current| {
        current.as_ref().map_or(usize::MAX, |Allowance(left)| left.get().saturating_sub(RESERVE))
    })
}

/// Takes a request from a share of the allowance. Returns whether there was one.
pub(crate) fn take(share: Share) -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_none_or(|allowance| allowance.take(share)))
}

impl Allowance {
    /// That of the work which is being done, or a whole one if nothing is.
    pub(crate) fn of_current() -> Self {
        CURRENT.with_borrow(Clone::clone).unwrap_or_else(|| Self(Rc::new(Cell::new(MOST.get()))))
    }

    /// Has it taken from, until what this returns is dropped.
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
