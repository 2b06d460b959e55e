//! The in-memory register: the conformance suite, and what is its own.

use ifmatch_store::conformance::{self, Traits};
use ifmatch_store::{AnyRegister, MemoryRegister};

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    conformance::run(MemoryRegister::unbounded(), Traits::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_behind_a_pointer() {
    conformance::run(AnyRegister::new(MemoryRegister::unbounded()), Traits::default()).await;
}
