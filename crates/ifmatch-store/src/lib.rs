//! The two-method register that ifmatch keeps its records in, its driver and its conformance suite.
