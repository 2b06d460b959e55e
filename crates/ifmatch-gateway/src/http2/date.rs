//! The `Date` of answers, made once a second.

use std::cell::RefCell;

use http::HeaderValue;
use ifmatch_core::date::HttpDate;
use ifmatch_runtime::{Clock, SystemClock};

thread_local! {
    static LAST: RefCell<(HttpDate, HeaderValue)> = RefCell::new(written(HttpDate::from_unix(0)));
}

/// What it is now.
pub(super) fn now() -> HeaderValue {
    let now = HttpDate::from_unix((SystemClock.wall().micros() / 1_000_000).cast_signed());
    LAST.with_borrow_mut(|last| {
        if last.0 != now {
            *last = written(now);
        }
        last.1.clone()
    })
}

fn written(date: HttpDate) -> (HttpDate, HeaderValue) {
    (date, date.to_header())
}
