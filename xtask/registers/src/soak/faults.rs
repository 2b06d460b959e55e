//! The faults of a soak test.

use std::time::Duration;

use ifmatch_testbed::{Network, Proxy};

use super::team::Team;
use crate::Result;

/// Operations between two lost responses.
const CUT_INTERVAL: usize = 100;
/// Pause between checks if a connection was cut.
const PAUSE: Duration = Duration::from_millis(2);
/// Number of checks after which idle connections are left alone.
const CHECKS: usize = 100;

/// A fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// Connections of one process end, each in the same way.
    Cut(Network),
    /// The network of one process hangs.
    Hang(Network),
    /// A process is killed, and another one takes its place.
    ProcessKilled,
    /// A process is suspended.
    ProcessPaused,
    /// A server is killed, and started again.
    ServerKilled,
    /// A server is suspended.
    ServerPaused,
}

impl Fault {
    pub(super) const ALL: [Self; 10] = [
        Self::Cut(Network::CutAfterCommit),
        Self::ProcessKilled,
        Self::Cut(Network::CutBeforeSending),
        Self::ServerKilled,
        Self::Cut(Network::CutAfterSending),
        Self::Hang(Network::Silent),
        Self::ProcessPaused,
        Self::Hang(Network::BlackHole),
        Self::ServerPaused,
        Self::Hang(Network::Reset),
    ];
}

impl Team {
    /// Lets a fault happen, to another process or server in each round. Hangs and pauses last
    /// `hold` seconds, and a connection is cut for every `CUT_INTERVAL` of the `operations`.
    pub(super) async fn suffer(
        &mut self,
        fault: Fault,
        round: usize,
        hold: u64,
        operations: usize,
    ) -> Result {
        let (process, server) = (round % self.processes.len(), round % self.servers.len());
        let hold = Duration::from_secs(hold);
        match fault {
            Fault::Cut(network) => {
                for _ in 0..operations.div_ceil(CUT_INTERVAL) {
                    cut(&self.processes[process].proxies, network).await;
                }
            }
            Fault::Hang(network) => {
                let set = |network| {
                    self.processes[process]
                        .proxies
                        .iter()
                        .for_each(|proxy| proxy.set(network));
                };
                set(network);
                tokio::time::sleep(hold).await;
                set(Network::Whole);
            }
            Fault::ProcessKilled => {
                self.processes[process].kill()?;
                self.replace(process)?;
            }
            Fault::ProcessPaused => self.pause_process(process, hold).await,
            Fault::ServerKilled => {
                self.servers[server].kill();
                self.servers[server].restart().await;
            }
            Fault::ServerPaused => {
                self.servers[server].pause();
                tokio::time::sleep(hold).await;
                self.servers[server].resume();
            }
        }
        Ok(())
    }
}

/// Cuts the next connection in use, and waits until it is cut.
async fn cut(proxies: &[Proxy], network: Network) {
    let set = |network| {
        for proxy in proxies {
            proxy.set(network);
        }
    };
    set(network);
    for _ in 0..CHECKS {
        tokio::time::sleep(PAUSE).await;
        if proxies
            .iter()
            .any(|proxy| proxy.network() == Network::Whole)
        {
            break;
        }
    }
    set(Network::Whole);
}
