//! The operator's side of leases: finding them, breaking them, and counting them.

pub(crate) mod api;
pub(crate) mod book;
pub(crate) mod list;
pub(crate) mod observed;
pub(crate) mod view;
