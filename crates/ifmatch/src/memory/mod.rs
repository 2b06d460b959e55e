//! The memory of responses: the header fields that make a 304, bounded by bytes.

mod cache;
mod entry;
#[cfg(test)]
mod tests;

pub(crate) use cache::Memory;
pub(crate) use entry::Remembered;
