//! Test support: starts the real binary, real servers and real clients for the suites in `tests/`.
