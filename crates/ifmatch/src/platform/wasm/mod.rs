//! WebAssembly in a JavaScript runtime: workerd, Node, or a browser.

pub(crate) use gates::Gates;
pub(crate) use memory::Memory;

mod gates;
mod memory;
