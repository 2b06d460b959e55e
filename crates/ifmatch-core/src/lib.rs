//! Strong entity tags, conditional requests and the write protocol as pure decisions without I/O.
