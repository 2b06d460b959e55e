//! A TCP proxy that loses responses and connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The state of the network between a client and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// All bytes arrive.
    Whole,
    /// The next response is lost together with its connection. Then the network is whole again.
    CutAfterCommit,
    /// The next request is lost together with its connection. Then the network is whole again.
    CutBeforeSending,
    /// The next request arrives, and its connection ends at once. Then the network is whole again.
    CutAfterSending,
    /// Connections are accepted, requests arrive, and responses are never delivered.
    Silent,
    /// Connections are accepted, and nothing arrives in either direction.
    BlackHole,
    /// Connections are reset (RST) at the next bytes in either direction.
    Reset,
}

/// The state of the network, and the connections that it applies to.
#[derive(Debug)]
struct ProxyState {
    network: Network,
    /// Text in the first bytes of the clients concerned. By default, all are.
    only: Option<String>,
}

/// A proxy in front of a server. Ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    network: Arc<watch::Sender<ProxyState>>,
    target: Arc<watch::Sender<SocketAddr>>,
    task: AbortHandle,
}

/// The end of a forwarded direction.
#[derive(PartialEq, Eq)]
enum RelayEnd {
    Closed,
    Reset,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

impl Proxy {
    /// Starts a proxy in front of the server at `target`, on a free port.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let network = Arc::new(watch::Sender::new(ProxyState {
            network: Network::Whole,
            only: None,
        }));
        let target = Arc::new(watch::Sender::new(target));
        let (states, targets) = (Arc::clone(&network), Arc::clone(&target));
        let accept = async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("a bound socket");
                connections.spawn(connection(client, targets.subscribe(), Arc::clone(&states)));
                while connections.try_join_next().is_some() {}
            }
        };
        Self {
            address,
            network,
            target,
            task: tokio::spawn(accept).abort_handle(),
        }
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the state of the network, for bytes that arrive from now on.
    pub fn set(&self, network: Network) {
        self.network.send_replace(ProxyState {
            network,
            only: None,
        });
    }

    /// Changes the state of the network for the clients that have this text in the first bytes that they sent. For others, it
    /// is whole.
    pub fn set_for(&self, text: &str, network: Network) {
        self.network.send_replace(ProxyState {
            network,
            only: Some(text.to_owned()),
        });
    }

    /// Returns the state of the network.
    pub fn network(&self) -> Network {
        self.network.borrow().network
    }

    /// Sends connections to another server from now on, and ends the present ones.
    pub fn redirect(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ProxyState {
    /// Returns the state of the network for a client, given the first bytes that it sent.
    fn of(&self, first: &OnceLock<Vec<u8>>) -> Network {
        let has = |text: &str| {
            first
                .get()
                .is_some_and(|first| String::from_utf8_lossy(first).contains(text))
        };
        if self.only.as_deref().is_none_or(has) {
            self.network
        } else {
            Network::Whole
        }
    }
}

async fn connection(
    client: TcpStream,
    mut target: watch::Receiver<SocketAddr>,
    network: Arc<watch::Sender<ProxyState>>,
) {
    let address = *target.borrow_and_update();
    // A server that is down ends the client's connection.
    let Ok(server) = TcpStream::connect(address).await else {
        return;
    };
    // Otherwise short messages wait for acknowledgements. A socket may be closed already.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let first = OnceLock::new();
    let end = tokio::select! {
        end = forward(&mut from_client, &mut to_server, &network, &first, Direction::Request) => end,
        end = forward(&mut from_server, &mut to_client, &network, &first, Direction::Answer) => end,
        _ = target.changed() => RelayEnd::Closed,
    };
    if end == RelayEnd::Reset {
        for (read, write) in [(from_client, to_client), (from_server, to_server)] {
            let socket = read.reunite(write).expect("the halves of one socket");
            // Without lingering, the end of a connection is a reset.
            let _ = socket.set_zero_linger();
        }
    }
}

/// Forwards bytes until one side ends, or until bytes arrive that the network cuts.
async fn forward(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    network: &watch::Sender<ProxyState>,
    first: &OnceLock<Vec<u8>>,
    direction: Direction,
) -> RelayEnd {
    let mut changes = network.subscribe();
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if direction == Direction::Request {
            first.get_or_init(|| bytes[..length].to_vec());
        }
        let waits = |state: Network| {
            state == Network::BlackHole
                || state == Network::Silent && direction == Direction::Answer
        };
        if changes
            .wait_for(|state| !waits(state.of(first)))
            .await
            .is_err()
        {
            return RelayEnd::Closed;
        }
        let mut cut = Network::Whole;
        network.send_if_modified(|state| {
            let is_cut = match state.of(first) {
                Network::CutAfterCommit => direction == Direction::Answer,
                Network::CutBeforeSending | Network::CutAfterSending => {
                    direction == Direction::Request
                }
                _ => false,
            };
            if is_cut || state.of(first) == Network::Reset {
                cut = state.network;
            }
            if is_cut {
                state.network = Network::Whole;
            }
            is_cut
        });
        match cut {
            Network::Whole => {}
            Network::Reset => return RelayEnd::Reset,
            Network::CutAfterSending => {
                // The server reads the request before it notices the end of the connection.
                let _ = to.write_all(&bytes[..length]).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                return RelayEnd::Closed;
            }
            _ => return RelayEnd::Closed,
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return RelayEnd::Closed;
        }
    }
    RelayEnd::Closed
}
