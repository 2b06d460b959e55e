//! The commands of `ifmatch` that aren't servers, and what the servers share with them: the terminal, signals, and stores by URL.

pub mod backup;
pub mod check;
pub mod guard;
pub mod health;
pub mod lease;
pub mod platform;
pub mod progress;
pub mod runtime;
pub mod store_url;
pub mod terminal;
pub mod verify;

mod http_client;
