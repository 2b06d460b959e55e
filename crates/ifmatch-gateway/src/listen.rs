//! Taking an address, and saying why it cannot be had.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::error::Error;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// An address that is ours, on which nobody can connect yet.
///
/// Taken before the store is opened, so that a taken port is found first; clients are let in when it is.
pub(crate) struct Reserved {
    socket: TcpSocket,
    address: SocketAddr,
}

impl Reserved {
    /// Takes `address`.
    ///
    /// # Errors
    /// It is taken, not of this machine, or not allowed to this user.
    pub(crate) fn take(address: SocketAddr) -> Result<Self, Error> {
        let reserve = || {
            let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        };
        let socket = reserve().map_err(|error| refused(address, &error))?;
        Ok(Self { socket, address })
    }

    /// Lets clients connect.
    ///
    /// # Errors
    /// Another process that had reserved the same address was first.
    pub(crate) fn listen(self) -> Result<TcpListener, Error> {
        let address = self.address;
        self.socket.listen(BACKLOG).map_err(|error| refused(address, &error))
    }
}

fn refused(address: SocketAddr, error: &io::Error) -> Error {
    Error::runtime(match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("{address} is already in use: stop the other program or choose another address with --listen")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("{address} is not an address of this machine: choose one that is with --listen")
        }
        io::ErrorKind::PermissionDenied => {
            format!("this user may not listen on {address}: choose a port from 1024 up with --listen")
        }
        _ => format!("cannot listen on {address}: {error}"),
    })
}
