//! Redis and Valkey.

use crate::server::{Program, Server};

/// The settings of a server that syncs each change.
pub const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Starts the server `redis-server`, or the one named by `IFMATCH_REDIS_SERVER`, such as `valkey-server`.
///
/// # Panics
/// Same as [`Server::start`].
pub async fn start(settings: &[&str]) -> Server {
    let name = std::env::var("IFMATCH_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let settings: Vec<String> = settings
        .iter()
        .map(|setting| (*setting).to_owned())
        .collect();
    let program = Program::new(
        &name,
        "redis-server",
        ("redis://", ""),
        move |port, folder| {
            let folder = folder.to_str().expect("a path of text");
            let own = [
                "--port",
                &port.to_string(),
                "--dir",
                folder,
                "--save",
                "",
                "--bind",
                "127.0.0.1",
            ]
            .map(str::to_owned);
            own.into_iter().chain(settings.iter().cloned()).collect()
        },
    );
    Server::start(program).await
}

/// Starts a server that syncs each change.
///
/// # Panics
/// Same as [`Server::start`].
pub async fn durable() -> Server {
    start(&DURABLE).await
}
