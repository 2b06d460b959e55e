//! The client and its commands against the real gateway: contention, faults of the network, stopped and killed processes.

mod check;
mod commands;
mod faults;
mod library;

use std::path::Path;

use support::Gateway;

fn serve(folder: &Path) -> Gateway {
    Gateway::start(["serve", "--data", folder.to_str().unwrap()])
}
