//! WebAssembly in a JavaScript runtime: workerd, Node, or a browser.

pub(crate) use task::spawn;
pub(crate) use time::{interval, since_1970, sleep};
pub(crate) use turns::Turns;

mod task;
mod time;
mod turns;
