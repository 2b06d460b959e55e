//! Servers of the machine itself: a free address for one, and the wait until it listens there.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::Result;

/// Maximum time for a server to start listening on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// An address that nobody listens on.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Waits until somebody listens there; an error that names the server if nobody does.
pub(crate) fn wait(name: &str, address: SocketAddr) -> Result {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        if Instant::now() > deadline {
            return Err(format!("{name} does not listen on {address}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
