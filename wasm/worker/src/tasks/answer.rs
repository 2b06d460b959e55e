//! What the runtime is asked and answers later. A number stands for the question, so that one function takes all answers:
//! a function for each of them, and for what may go wrong with it, has to be made and done away with.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::Closure;

use super::allowance::{self, SPENT, Share};
use super::run;
use crate::glue;

/// What was said: a text if that says it, and an object of the runtime. Or why not.
pub(crate) type Said = Result<(Option<String>, JsValue), JsValue>;

/// An answer to come.
pub(crate) struct Answer {
    number: u32,
}

/// A question that somebody waits at.
struct Asked {
    number: u32,
    said: Option<Said>,
    waker: Option<Waker>,
}

thread_local! {
    /// The questions that somebody waits at. There are not many at a time.
    static ASKED: RefCell<Vec<Asked>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u32> = const { Cell::new(0) };
    /// Whether the runtime knows whom to tell.
    static LISTENS: Cell<bool> = const { Cell::new(false) };
}

/// Has the runtime tell its answers.
fn listen() {
    let told: Closure<dyn Fn(u32, bool, Option<String>, JsValue)> = Closure::new(|number, is_error, text, value| {
        told(number, if is_error { Err(value) } else { Ok((text, value)) });
    });
    glue::listen(&told.into_js_value());
}

/// An answer. Nobody waits for one that comes too late.
fn told(number: u32, said: Said) {
    let waker = ASKED.with_borrow_mut(|asked| {
        let asked = asked.iter_mut().find(|asked| asked.number == number)?;
        asked.said.get_or_insert(said);
        asked.waker.take()
    });
    run::called(|| {
        if let Some(waker) = waker {
            waker.wake();
        }
    });
}

impl Answer {
    /// Sends the request under its assigned number, if the share of the allowance has a request left.
    pub(crate) fn to(share: Share, ask: impl FnOnce(u32)) -> Self {
        if !LISTENS.replace(true) {
            listen();
        }
        let number = NEXT.replace(NEXT.get().wrapping_add(1));
        let is_allowed = allowance::take(share);
        let said = (!is_allowed).then(|| Err(js_sys::Error::new(SPENT).into()));
        ASKED.with_borrow_mut(|asked| asked.push(Asked { number, said, waker: None }));
        let answer = Self { number };
        if is_allowed {
            ask(number);
        }
        answer
    }
}

impl Future for Answer {
    type Output = Said;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Said> {
        ASKED.with_borrow_mut(|asked| {
            // It is there until this is dropped.
            let Some(asked) = asked.iter_mut().find(|asked| asked.number == self.number) else { return Poll::Pending };
            if let Some(said) = asked.said.take() {
                return Poll::Ready(said);
            }
            asked.waker = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let asked = ASKED.with_borrow_mut(|asked| {
            let at = asked.iter().position(|asked| asked.number == self.number)?;
            Some(asked.swap_remove(at))
        });
        // Its waker may drop more of them.
        drop(asked);
    }
}
