//! Taking an address, and saying why it cannot be had.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use crate::error::Error;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// The flag that sets where blobs are served.
pub(crate) const BLOBS: &str = "--listen";
/// The flag that sets where tables are served, and can switch them off.
pub(crate) const TABLES: &str = "--listen-tables";

/// An address that is ours, on which nobody can connect yet.
///
/// Taken before the store is opened, so that a taken port is found first; clients are let in when it is.
pub(crate) struct Reserved {
    socket: TcpSocket,
    address: SocketAddr,
    flag: &'static str,
}

impl Reserved {
    /// Takes `address`, which `flag` sets.
    ///
    /// # Errors
    /// It is taken, not of this machine, or not allowed to this user.
    pub(crate) fn take(address: SocketAddr, flag: &'static str) -> Result<Self, Error> {
        let reserve = || {
            let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        };
        let socket = reserve().map_err(|error| refused(address, flag, &error))?;
        Ok(Self { socket, address, flag })
    }

    /// Lets clients connect, and says where: with the port that it got if any was wanted.
    ///
    /// # Errors
    /// Another process that had reserved the same address was first.
    pub(crate) fn listen(self) -> Result<(TcpListener, SocketAddr), Error> {
        let listen = || {
            let listener = self.socket.listen(BACKLOG)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        listen().map_err(|error| refused(self.address, self.flag, &error))
    }
}

fn refused(address: SocketAddr, flag: &str, error: &io::Error) -> Error {
    let or_off = if flag == TABLES { ", or leave the tables out with --listen-tables off" } else { "" };
    Error::runtime(match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("{address} is already in use: stop the other program or choose another address with {flag}{or_off}")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("{address} is not an address of this machine: choose one that is with {flag}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("this user may not listen on {address}: choose a port from 1024 up with {flag}")
        }
        _ => format!("cannot listen on {address}: {error}"),
    })
}
