//! Ports of servers.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as SocketName, UnixListener};

/// Ports below the range from which Linux assigns ports by default (`ip_local_port_range` in ip(7)).
const PORTS: Range<u16> = 20_000..32_768;
/// Number of ports to try.
const ATTEMPTS: usize = 1_000;

/// A port for a server, claimed until this is dropped, even while the server is down. Otherwise, another test's server could
/// take the port and answer this test.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// A socket named after the port. Linux closes it when this process ends.
    _claim: UnixListener,
}

impl Port {
    /// Claims a port that nothing uses.
    ///
    /// # Panics
    /// Panics if all ports tried are in use.
    pub fn claim() -> Self {
        let random = || {
            PORTS.start
                + u16::try_from(RandomState::new().hash_one(()) % PORTS.len() as u64)
                    .expect("a u16")
        };
        let claimed = (0..ATTEMPTS).find_map(|_| Self::try_claim(random()));
        claimed.unwrap_or_else(|| panic!("none of {ATTEMPTS} ports is free"))
    }

    fn try_claim(number: u16) -> Option<Self> {
        let name = SocketName::from_abstract_name(format!("ifmatch-testbed-{number}"))
            .expect("a short name");
        let claim = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self {
            number,
            _claim: claim,
        })
    }

    /// Returns the number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the address on this machine.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_claimed_once() {
        let port = Port::claim();
        assert!(
            Port::try_claim(port.number()).is_none(),
            "two servers have port {}",
            port.number()
        );
    }

    #[test]
    fn a_port_in_use_is_not_claimed() {
        let used = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = used.local_addr().expect("a bound socket");
        assert!(
            Port::try_claim(address.port()).is_none(),
            "{address} is in use"
        );
    }
}
