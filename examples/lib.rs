//! The package of the examples: it has their dependencies, and none of the tests' and benches', so that the first
//! example is quickly built. Start with `README.md`.

/// The code in the project's README is tested like any other.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
