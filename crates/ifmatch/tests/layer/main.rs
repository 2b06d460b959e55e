//! The layer around an inner service that stops, fails and changes when told, on a clock that moves by hand.

mod compression;
mod memory;
mod reads;
mod support;
mod writes;
mod writes_in_doubt;
