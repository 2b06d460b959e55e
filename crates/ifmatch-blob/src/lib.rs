//! The ifmatch blob service: an embedded store, an object_store adapter and the HTTP dialects.
