//! Listeners, and the sockets that the service manager has opened for them, as systemd does for a `.socket` unit (`LISTEN_FDS`).

use std::io::{self, Write};
use std::net::{self, SocketAddr};
use std::sync::Arc;

use ifmatch_http_server::{RequestHandler, Server, ServerLimits, ServerListeners, SlotLimit};
use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpSocket};

use ifmatch_gateway_commands::platform;
use ifmatch_gateway_config::ServerConfig;
use ifmatch_gateway_config::address::{ListenAddress, OptionalListener};
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_service::console::Console;
use ifmatch_gateway_service::gateway::Gateway;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// The flag for the addresses of the site: blobs, or the proxy.
const SITE: &str = "--listen";
/// The flag for the address of the endpoints.
const ADMIN: &str = "--admin-listen";
/// The flag for the addresses that redirect.
const REDIRECT: &str = "--redirect-listen";
/// The flag for the address of tables.
pub(crate) const TABLES: &str = "--listen-tables";
/// The flag for the address of S3 clients.
pub(crate) const S3: &str = "--listen-s3";
/// The flag for the address of the console.
pub(crate) const CONSOLE: &str = "--console";

/// Maximum number of connections to the endpoints, and to the console. Clients of the site don't count, so an operator
/// gets through when they have taken all of theirs. The console has 64 live pages, each with a connection.
const OPERATORS: SlotLimit = SlotLimit {
    total: 256,
    per_client: None,
};

/// Number of free ports to try until one is free on every address of this machine.
const ATTEMPTS: usize = 16;

/// The bound addresses of a server: of its site, of its own endpoints, and those that redirect to TLS.
pub(crate) struct Listeners {
    site: Vec<ReservedAddress>,
    admin: Option<ReservedAddress>,
    redirect: Vec<ReservedAddress>,
    console: Option<ReservedAddress>,
    /// Limits of the endpoints, and of the console.
    operators: ServerLimits,
}

/// The actual addresses of a server.
pub(crate) struct BoundAddresses {
    site: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    redirect: Vec<SocketAddr>,
    console: Option<SocketAddr>,
}

impl Listeners {
    /// Binds the addresses.
    ///
    /// # Errors
    /// Fails if one of them is in use, unavailable or not permitted.
    pub(crate) fn bind(
        config: &ServerConfig,
        inherited: &mut InheritedSockets,
    ) -> Result<Self, Error> {
        let mut all = |addresses: &[ListenAddress], flag| {
            let bind = |address: &ListenAddress| {
                ReservedAddress::beside(addresses, *address, flag, inherited)
            };
            addresses.iter().map(bind).collect::<Result<_, Error>>()
        };
        let settings = &config.settings;
        Ok(Self {
            site: all(&settings.listen, SITE)?,
            redirect: all(&settings.redirect_listen, REDIRECT)?,
            admin: settings
                .admin_listen
                .map(|address| ReservedAddress::beside(&[], address, ADMIN, inherited))
                .transpose()?,
            console: ReservedAddress::optional(config.console, CONSOLE, "console", inherited)?,
            operators: ServerLimits {
                connections: OPERATORS,
                requests: OPERATORS,
                ..config.limits
            },
        })
    }

    /// Serves the site with `gateway`, and the rest on its own.
    ///
    /// # Errors
    /// Fails if another process that has bound the same address was faster.
    pub(crate) fn serve<S: Clone>(
        self,
        server: &mut Server,
        gateway: Gateway<S>,
    ) -> Result<BoundAddresses, Error>
    where
        Gateway<S>: RequestHandler,
    {
        let mut addresses = BoundAddresses {
            site: Vec::new(),
            admin: None,
            redirect: Vec::new(),
            console: None,
        };
        let state = Arc::clone(gateway.state());
        if let Some(reserved) = self.console {
            let (listeners, address) = reserved.listen()?;
            let console = Arc::new(Console::new(
                Arc::new(gateway.clone()).into(),
                Arc::clone(&state),
                address,
            )?);
            // A browser on this machine needs no certificate, and the service's have other names.
            let listening = ServerListeners::from(listeners).limits(self.operators);
            let is_local = address.ip().is_loopback();
            server.serve(
                if is_local {
                    listening.plain()
                } else {
                    listening
                },
                console,
            );
            addresses.console = Some(address);
        }
        let gateway = Arc::new(gateway.leaving_endpoints(self.admin.is_some()));
        for reserved in self.site {
            let (listeners, address) = reserved.listen()?;
            server.serve(listeners, Arc::clone(&gateway));
            addresses.site.push(address);
        }
        if let Some(reserved) = self.admin {
            let (listeners, address) = reserved.listen()?;
            let listening = ServerListeners::from(listeners)
                .plain()
                .limits(self.operators);
            server.serve(
                listening,
                Arc::new(Gateway::of_endpoints(Arc::clone(&state))),
            );
            addresses.admin = Some(address);
        }
        let port = addresses.first().port();
        for reserved in self.redirect {
            let (listeners, address) = reserved.listen()?;
            server.serve(
                ServerListeners::from(listeners).plain(),
                Arc::new(Gateway::to_tls(Arc::clone(&state), port)),
            );
            addresses.redirect.push(address);
        }
        Ok(addresses)
    }
}

impl BoundAddresses {
    /// Returns the address of a site that has one alone.
    #[cfg(test)]
    pub(crate) fn one(address: SocketAddr) -> Self {
        Self {
            site: vec![address],
            admin: None,
            redirect: Vec::new(),
            console: None,
        }
    }

    /// Returns the first address of the site.
    pub(crate) fn first(&self) -> SocketAddr {
        self.site
            .first()
            .copied()
            .unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Prints a line for each address.
    ///
    /// # Errors
    /// Fails if the stream is closed.
    pub(crate) fn print(&self, out: &mut dyn Write, scheme: &str) -> io::Result<()> {
        for address in &self.site {
            writeln!(out, "listening on {scheme}://{address}")?;
        }
        if let Some(address) = self.admin {
            writeln!(out, "endpoints on http://{address}/-/")?;
        }
        if let Some(address) = self.console {
            let scheme = if address.ip().is_loopback() {
                "http"
            } else {
                scheme
            };
            writeln!(out, "console on {scheme}://{address}")?;
        }
        for address in &self.redirect {
            writeln!(out, "redirecting http://{address} to https")?;
        }
        Ok(())
    }
}

/// Bound addresses that don't accept connections yet.
///
/// Addresses are bound before the store is opened, to detect a port in use early, and accept connections afterwards.
pub(crate) struct ReservedAddress {
    sockets: Vec<UnusedSocket>,
    address: SocketAddr,
    flag: &'static str,
}

/// A socket before it is used.
enum UnusedSocket {
    Bound(TcpSocket),
    /// The service manager has opened it, and it accepts connections already.
    Inherited(net::TcpListener),
}

impl UnusedSocket {
    fn listen(self) -> io::Result<TcpListener> {
        match self {
            Self::Bound(socket) => socket.listen(BACKLOG),
            Self::Inherited(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)
            }
        }
    }
}

impl ReservedAddress {
    /// Binds an optional address. Another gateway on this machine may have the default address, so unless the address was set,
    /// this one goes on without it, and warns that it doesn't serve `what`.
    ///
    /// # Errors
    /// Fails if an address that was set is in use, unavailable or not permitted.
    pub(crate) fn optional(
        listener: OptionalListener,
        flag: &'static str,
        what: &'static str,
        inherited: &mut InheritedSockets,
    ) -> Result<Option<Self>, Error> {
        let Some(address) = listener.address else {
            return Ok(None);
        };
        match Self::beside(&[], address, flag, inherited) {
            Ok(reserved) => Ok(Some(reserved)),
            Err(error) if listener.is_requested => Err(error),
            Err(error) => {
                tracing::warn!("{what} not started. {error}");
                Ok(None)
            }
        }
    }

    /// Binds `address`, a value of `flag`, or takes its inherited socket. `[::]` includes all addresses of IPv4, unless one of the
    /// `others` that are bound beside it is of IPv4 and has the same port.
    ///
    /// # Errors
    /// Fails if the address is in use, unavailable or not permitted.
    fn beside(
        others: &[ListenAddress],
        address: ListenAddress,
        flag: &'static str,
        inherited: &mut InheritedSockets,
    ) -> Result<Self, Error> {
        let is_shared = |other: SocketAddr| other.is_ipv4() && other.port() == address.port();
        let only_ipv6 = others
            .iter()
            .flat_map(|other| other.addresses())
            .any(is_shared);
        let mut attempts = if address.port() == 0 { ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            match reserve(address, only_ipv6, inherited) {
                Ok((sockets, address)) => {
                    return Ok(Self {
                        sockets,
                        address,
                        flag,
                    });
                }
                Err((_, error)) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {}
                Err((address, error)) => return Err(unavailable(address, flag, &error)),
            }
        }
    }

    /// Starts to accept connections and returns the first address, with its actual port.
    ///
    /// # Errors
    /// Fails if another process that has bound the same address was faster.
    pub(crate) fn listen(self) -> Result<(Vec<TcpListener>, SocketAddr), Error> {
        let listeners = self
            .sockets
            .into_iter()
            .map(UnusedSocket::listen)
            .collect::<io::Result<_>>();
        listeners
            .map(|listeners| (listeners, self.address))
            .map_err(|error| unavailable(self.address, self.flag, &error))
    }
}

/// Binds sockets at all addresses and returns them with the actual first address. An error names the failing address.
fn reserve(
    address: ListenAddress,
    only_ipv6: bool,
    inherited: &mut InheritedSockets,
) -> Result<(Vec<UnusedSocket>, SocketAddr), (SocketAddr, io::Error)> {
    let mut sockets: Vec<UnusedSocket> = Vec::new();
    let mut first = None;
    for mut address in address.addresses() {
        if let Some(SocketAddr::V4(first)) = first {
            address.set_port(first.port());
        }
        let bound = match inherited.take(address) {
            Some(listener) => Ok((UnusedSocket::Inherited(listener), address)),
            None => {
                bind(address, only_ipv6).map(|(socket, bound)| (UnusedSocket::Bound(socket), bound))
            }
        };
        match bound {
            Ok((socket, bound)) => {
                sockets.push(socket);
                first = first.or(Some(bound));
            }
            // Some machines have no IPv6.
            Err(error) if first.is_some() && error.kind() != io::ErrorKind::AddrInUse => {
                tracing::debug!(%address, %error, "not listening there");
            }
            Err(error) => return Err((address, error)),
        }
    }
    let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
    first
        .map(|first| (sockets, first))
        .ok_or_else(|| (unspecified, io::ErrorKind::AddrNotAvailable.into()))
}

fn bind(address: SocketAddr, only_ipv6: bool) -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = if address.is_ipv6() {
        TcpSocket::new_v6()?
    } else {
        TcpSocket::new_v4()?
    };
    platform::prepare(&socket, address, only_ipv6)?;
    socket.bind(address)?;
    let bound = socket.local_addr()?;
    Ok((socket, bound))
}

fn unavailable(address: SocketAddr, flag: &str, error: &io::Error) -> Error {
    let is_optional = [TABLES, S3, CONSOLE].contains(&flag);
    let or_off = if is_optional {
        format!(", or set {flag} off")
    } else {
        String::new()
    };
    Error::runtime(match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "{address} is already in use. Stop the other program, or choose another address with {flag}{or_off}."
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("{address} is not an address of this machine. Choose another one with {flag}.")
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "this user isn't allowed to listen on {address}. Choose port 1024 or higher with {flag}, or grant CAP_NET_BIND_SERVICE."
            )
        }
        _ => format!("can't listen on {address}: {error}. Choose another address with {flag}."),
    })
}

/// The sockets that no address has taken yet.
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets(Vec<(SocketAddr, net::TcpListener)>);

impl InheritedSockets {
    /// Takes the sockets of this process.
    ///
    /// # Errors
    /// Fails if one of them isn't a listening TCP socket.
    pub(crate) fn from_env() -> Result<Self, Error> {
        let mut sockets = ListenFd::from_env();
        let invalid = |error| {
            Error::usage(format!(
                "the service manager passed a socket that isn't a TCP listener ({error}). Correct its .socket unit: \
                 Accept=no and ListenStream."
            ))
        };
        let mut inherited = Vec::new();
        for index in 0..sockets.len() {
            if let Some(listener) = sockets.take_tcp_listener(index).map_err(invalid)? {
                // A unit with `Accept=yes` passes a connection, on which `accept` fails forever.
                if !platform::is_listening(&listener).map_err(invalid)? {
                    return Err(invalid(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        "it doesn't accept connections",
                    )));
                }
                inherited.push((listener.local_addr().map_err(invalid)?, listener));
            }
        }
        Ok(Self(inherited))
    }

    /// Takes the socket of an address.
    pub(crate) fn take(&mut self, address: SocketAddr) -> Option<net::TcpListener> {
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
                "the service manager passed a socket for {address}, but no setting listens there. Add the address, or remove it \
                 from the .socket unit."
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some machines have no IPv6: only the first address is needed there.
    #[tokio::test]
    async fn all_addresses_of_ipv4_and_of_ipv6_share_a_port() {
        let has_ipv6 = TcpListener::bind("[::1]:0").await.is_ok();
        let shared = (0..ATTEMPTS).find_map(|_| {
            let (first, at) = bind("0.0.0.0:0".parse().unwrap(), false).unwrap();
            let both = [
                at,
                SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, at.port())),
            ]
            .map(ListenAddress::One);
            let second =
                ReservedAddress::beside(&both, both[1], SITE, &mut InheritedSockets::default());
            let second = if has_ipv6 { Some(second.ok()?) } else { None };
            Some((
                first.listen(BACKLOG).is_ok(),
                second.is_none_or(|second| second.listen().is_ok()),
            ))
        });
        assert_eq!(shared, Some((true, true)));
    }

    #[test]
    fn a_socket_is_taken_once_and_none_may_be_left() {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = SocketAddr::from(([127, 0, 0, 2], address.port()));
        let mut inherited = InheritedSockets(vec![(address, listener)]);
        assert!(inherited.take(other).is_none());
        assert_eq!(
            inherited.take(address).unwrap().local_addr().unwrap(),
            address
        );
        assert!(inherited.take(address).is_none());
        assert!(inherited.finish().is_ok());
        let left = InheritedSockets(vec![(
            other,
            net::TcpListener::bind("127.0.0.1:0").unwrap(),
        )])
        .finish();
        assert!(left.unwrap_err().to_string().contains(&other.to_string()));
    }
}
