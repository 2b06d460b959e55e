//! The package of the examples. It has only their dependencies, so the first example builds quickly. Start with
//! `README.md`.

/// Tests the code in the project's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Tests the code in the guide for axum.
#[cfg(doctest)]
#[doc = include_str!("../docs/howto/axum.md")]
struct Axum;
