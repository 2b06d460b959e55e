//! The workspace's tasks.
fn main() {}
