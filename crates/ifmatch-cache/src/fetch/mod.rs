//! Requests to the origin: shared by the clients that wait for them, and stored on their way.

mod fill;
pub(crate) mod forward;
mod head;
pub(crate) mod origin;
pub(crate) mod resume;
pub(crate) mod revalidation;
pub(crate) mod single_flight;
