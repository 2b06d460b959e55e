//! GET and HEAD. HEAD runs the inner service as GET and drops the body, so both have the same tag.
//!
//! A read passes the modules in this order.

pub(crate) mod request;

pub(crate) mod cached;

mod run;

pub(crate) mod cache_control;
pub(crate) mod compressed_tag;
pub(crate) mod dates;
pub(crate) mod revision_tag;
pub(crate) mod tag;
pub(crate) mod vary;

mod observe;

mod respond;

pub(crate) use request::ReadContext;
pub(crate) use run::read;
