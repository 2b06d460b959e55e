//! The `ifmatch` command.
fn main() {}
