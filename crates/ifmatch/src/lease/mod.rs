//! Leases: the operations, which the layer itself handles, and reads and writes under a lease.

pub(crate) mod request;

mod operation;
mod read;
mod reply;

pub(crate) use operation::PendingLeaseOperation;
pub(crate) use read::read;
