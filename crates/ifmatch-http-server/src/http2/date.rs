//! The `Date` of responses, formatted once per second.

use std::cell::RefCell;

use http::HeaderValue;
use ifmatch_core::date::HttpDate;
use ifmatch_runtime::{Clock, SystemClock};

thread_local! {
    static LAST: RefCell<(HttpDate, HeaderValue)> = RefCell::new(formatted(HttpDate::from_unix(0)));
}

/// Returns the current date.
pub(super) fn now() -> HeaderValue {
    let now = HttpDate::from_unix((SystemClock.wall().micros() / 1_000_000).cast_signed());
    LAST.with_borrow_mut(|last| {
        if last.0 != now {
            *last = formatted(now);
        }
        last.1.clone()
    })
}

fn formatted(date: HttpDate) -> (HttpDate, HeaderValue) {
    (date, date.to_header())
}
