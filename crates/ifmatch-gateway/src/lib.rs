//! The ifmatch gateway: a blob service and proxy with strong ETags and conditional writes.
