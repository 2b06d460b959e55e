//! The client and its commands against the real gateway: contention, faults of the network, stopped and killed processes.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod azure;
mod check;
mod commands;
mod faults;
mod library;

use std::path::Path;

use support::Gateway;

fn serve(folder: &Path) -> Gateway {
    Gateway::start(["serve", "--data", folder.to_str().unwrap()])
}
