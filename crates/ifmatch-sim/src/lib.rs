//! Model checking and seeded simulation of the ifmatch write protocol.
