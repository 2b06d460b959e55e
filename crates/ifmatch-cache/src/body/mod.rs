//! Stored bodies: in memory, on disk, and still arriving.

pub(crate) mod broadcast;
pub(crate) mod budget;
pub(crate) mod chunk_buffer;
pub(crate) mod disk_index;
pub(crate) mod disk_reader;
pub(crate) mod folder;
mod free_space;
pub(crate) mod held;
pub(crate) mod in_memory;
pub(crate) mod on_disk;
pub(crate) mod parts;
mod threads;
