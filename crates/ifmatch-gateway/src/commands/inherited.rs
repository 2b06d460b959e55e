//! Sockets that the service manager has opened, as systemd does for a `.socket` unit (`LISTEN_FDS`).
//!
//! They stay open while the process restarts: connections wait for the next process in place of being refused. A socket is used
//! where an address of the settings is its own, so the settings are the same with and without one.

use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;

use crate::error::Error;

/// The sockets that no address has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Inherited(Vec<(SocketAddr, TcpListener)>);

impl Inherited {
    /// Takes the sockets of this process.
    ///
    /// # Errors
    /// Fails if one of them is no TCP socket that listens.
    pub(crate) fn from_env() -> Result<Self, Error> {
        let mut sockets = ListenFd::from_env();
        let invalid = |error| {
            Error::usage(format!(
                "the service manager passes a socket that isn't for TCP connections ({error}): see its .socket unit"
            ))
        };
        let mut inherited = Vec::new();
        for index in 0..sockets.len() {
            if let Some(listener) = sockets.take_tcp_listener(index).map_err(invalid)? {
                inherited.push((listener.local_addr().map_err(invalid)?, listener));
            }
        }
        Ok(Self(inherited))
    }

    /// Takes the socket of an address.
    pub(crate) fn take(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let index = self.0.iter().position(|(bound, _)| *bound == address)?;
        Some(self.0.swap_remove(index).1)
    }

    /// Checks that all sockets were taken. Clients of one that wasn't would wait forever.
    ///
    /// # Errors
    /// Names the address of a socket that no setting has.
    pub(crate) fn finish(self) -> Result<(), Error> {
        match self.0.first() {
            None => Ok(()),
            Some((address, _)) => Err(Error::usage(format!(
                "the service manager passes a socket for {address}, but no setting listens there: add the address, or remove it \
                 from the .socket unit"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_taken_once_and_none_may_be_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = SocketAddr::from(([127, 0, 0, 2], address.port()));
        let mut inherited = Inherited(vec![(address, listener)]);
        assert!(inherited.take(other).is_none());
        assert_eq!(inherited.take(address).unwrap().local_addr().unwrap(), address);
        assert!(inherited.take(address).is_none());
        assert!(inherited.finish().is_ok());
        let left = Inherited(vec![(other, TcpListener::bind("127.0.0.1:0").unwrap())]).finish();
        assert!(left.unwrap_err().to_string().contains(&other.to_string()));
    }
}
