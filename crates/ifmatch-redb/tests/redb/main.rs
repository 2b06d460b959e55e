//! The register on files: conformance, crashes, losses of power, damage.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod crash;
mod platter;
mod power;
mod register;

use ifmatch_core::command::{Command, Content, Outcome, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_register::{Driver, DriverError, Key};
use ifmatch_runtime::nonce;

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// Writes a number, unconditionally.
pub(crate) async fn set(driver: &Driver, name: &str, number: u64) -> Result<(), DriverError> {
    let bytes = number.to_le_bytes();
    let write = Write::new(
        &http::Method::PUT,
        &Preconditions::NONE,
        Content::Hashed {
            hash: ContentHash::of(&bytes),
            payload: bytes.to_vec().into(),
        },
        nonce()?,
    );
    let applied = driver.apply(&key(name), &Command::Write(write)).await?;
    assert!(matches!(applied.outcome, Outcome::Written(_)));
    Ok(())
}

/// Reads a number.
pub(crate) async fn get(driver: &Driver, name: &str) -> Result<Option<u64>, DriverError> {
    let record = driver.load(&key(name)).await?;
    let payload = record
        .settled(driver.now())
        .map(|version| version.payload().clone());
    Ok(payload.map(|bytes| u64::from_le_bytes(bytes[..].try_into().unwrap())))
}
