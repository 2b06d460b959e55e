//! Addresses of local servers.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::Result;

/// Maximum time for a server to start listening on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// Returns a free address.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Waits until a server listens on an address.
pub fn wait(name: &str, address: SocketAddr) -> Result {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        if Instant::now() > deadline {
            let text = format!("{name} does not listen on {address} after {PATIENCE:?}");
            return Err(text.into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
