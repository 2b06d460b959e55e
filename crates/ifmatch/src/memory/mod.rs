//! The memory of responses: the header fields that make a 304, bounded by bytes.

mod entry;
mod responses;
#[cfg(test)]
mod tests;

pub(crate) use entry::RememberedHead;
pub(crate) use responses::ResponseMemory;
