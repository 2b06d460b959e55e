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

/// Waits until a server listens on an address. Fails early if `still_runs` does, since its process has ended.
pub fn wait(name: &str, address: SocketAddr, mut still_runs: impl FnMut() -> Result) -> Result {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        still_runs().map_err(|error| format!("{name} has ended before it listened: {error}"))?;
        if Instant::now() > deadline {
            let text = format!("{name} does not listen on {address} after {PATIENCE:?}");
            return Err(text.into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::command::Run;

    #[test]
    fn a_server_that_ends_is_not_waited_for() {
        let address = free_address().unwrap();
        for (program, status) in [("true", 0), ("false", 1)] {
            let mut process = Run::new(program, Path::new(".")).start().unwrap();
            let error = wait("it", address, || process.still_runs()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("it has ended before it listened: exit status: {status}: {program}")
            );
        }
    }
}
