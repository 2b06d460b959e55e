//! A TCP proxy that loses answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

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
    /// The next answer is lost together with its connection. Then the network is whole again.
    CutAfterCommit,
    /// The next request is lost together with its connection. Then the network is whole again.
    CutBeforeSending,
    /// Connections are accepted, requests arrive, and answers are never delivered.
    Silent,
}

/// A proxy in front of a server. Ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    network: Arc<watch::Sender<Network>>,
    target: Arc<watch::Sender<SocketAddr>>,
    task: AbortHandle,
}

impl Proxy {
    /// Starts a proxy in front of the server at `target`, on a free port.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let network = Arc::new(watch::Sender::new(Network::Whole));
        let target = Arc::new(watch::Sender::new(target));
        let (states, targets) = (Arc::clone(&network), Arc::clone(&target));
        let accept = async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("a bound socket");
                connections.spawn(connection(client, targets.subscribe(), Arc::clone(&states)));
            }
        };
        Self { address, network, target, task: tokio::spawn(accept).abort_handle() }
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the state of the network, for bytes that arrive from now on.
    pub fn set(&self, network: Network) {
        self.network.send_replace(network);
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

async fn connection(client: TcpStream, mut target: watch::Receiver<SocketAddr>, network: Arc<watch::Sender<Network>>) {
    let address = *target.borrow_and_update();
    // A server that is down ends the client's connection.
    let Ok(server) = TcpStream::connect(address).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let requests = forward(from_client, to_server, &network, Network::CutBeforeSending);
    let answers = forward(from_server, to_client, &network, Network::CutAfterCommit);
    tokio::select! {
        () = requests => {}
        () = answers => {}
        _ = target.changed() => {}
    }
}

/// Forwards bytes until one side ends, or until bytes arrive while the network has the state `cut`.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, network: &watch::Sender<Network>, cut: Network) {
    let mut changes = network.subscribe();
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if cut == Network::CutAfterCommit && changes.wait_for(|state| *state != Network::Silent).await.is_err() {
            return;
        }
        let is_cut = network.send_if_modified(|state| {
            let is_cut = *state == cut;
            if is_cut {
                *state = Network::Whole;
            }
            is_cut
        });
        if is_cut || to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
