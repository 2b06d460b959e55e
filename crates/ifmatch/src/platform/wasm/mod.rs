//! WebAssembly in a JavaScript runtime: workerd, Node, or a browser.

pub(crate) use gates::Gates;

mod gates;
