//! A Tower layer for strong ETags, conditional requests and race-free conditional writes.
