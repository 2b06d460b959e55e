//! The register of the example passes the conformance suite.

use ifmatch_register::conformance::{self, RaceSize};

#[path = "../examples/custom_register.rs"]
pub mod custom_register;

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let folder = tempfile::tempdir().expect("a folder");
    let register = custom_register::FolderRegister::open(folder.path()).expect("a register");
    conformance::run(register, RaceSize::new(8, 5)).await;
}
