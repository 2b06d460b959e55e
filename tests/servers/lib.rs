//! Nothing: the tests are in `main.rs`. A package needs a library or a program.
