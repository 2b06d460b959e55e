//! Clients that write to a register, and the check of their history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ifmatch_register::Register;
use ifmatch_register::conformance::history::{self, Operation, Violation};
use ifmatch_register::conformance::workload::{Client, Workload};

use crate::within;

/// Pause of a client after a failure.
const PAUSE: Duration = Duration::from_millis(5);
/// Number of swaps of each client during a fault.
const WINS: usize = 20;

/// Clients of one process that read and swap a few keys at random.
///
/// ```
/// use std::sync::Arc;
/// use ifmatch_register::MemoryRegister;
/// use ifmatch_testbed::Clients;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let register = Arc::new(MemoryRegister::unbounded());
/// let clients = Clients::new("note", 3, 8).run(&register, 20).await;
/// clients.check(&*register).await.expect("a linearizable register");
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Clients {
    workload: Workload,
    members: Vec<Client>,
    /// A clock that counts the operations.
    ticks: Arc<AtomicU64>,
}

impl Clients {
    /// Creates clients of the keys `prefix/0000` and so on.
    pub fn new(prefix: &str, keys: usize, count: usize) -> Self {
        let workload = Workload::new(prefix, keys, count);
        let members = (0..count).map(|number| workload.client(number)).collect();
        Self {
            workload,
            members,
            ticks: Arc::default(),
        }
    }

    /// Returns their workload.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Returns the number of swaps that took place.
    pub fn wins(&self) -> usize {
        self.members.iter().map(Client::wins).sum()
    }

    /// Runs the clients until each has swapped `wins` more times.
    pub async fn run<R: Register>(self, register: &Arc<R>, wins: usize) -> Self {
        let Self {
            workload,
            members,
            ticks,
        } = self;
        let start = |mut client: Client| {
            let (register, ticks) = (Arc::clone(register), Arc::clone(&ticks));
            tokio::spawn(async move {
                for goal in (client.wins()..).skip(1).take(wins) {
                    within("a client's next swap", async {
                        while client.wins() < goal {
                            if !client
                                .step(&*register, || ticks.fetch_add(1, Ordering::SeqCst))
                                .await
                            {
                                tokio::time::sleep(PAUSE).await;
                            }
                            tokio::task::yield_now().await;
                        }
                    })
                    .await;
                }
                client
            })
        };
        let running: Vec<_> = members.into_iter().map(start).collect();
        let mut members = Vec::new();
        for client in running {
            members.push(
                within("each client's swaps", client)
                    .await
                    .expect("a client"),
            );
        }
        Self {
            workload,
            members,
            ticks,
        }
    }

    /// Runs the clients while a fault happens, from before it until each has swapped `wins` times.
    pub async fn run_during<R: Register>(
        self,
        register: &Arc<R>,
        wins: usize,
        fault: impl Future<Output = ()>,
    ) -> Self {
        let clients = self.run(register, 1).await;
        let running = Arc::clone(register);
        let running = tokio::spawn(async move { clients.run(&running, wins).await });
        fault.await;
        running.await.expect("the clients")
    }

    /// Runs the clients through a fault, from `begin` until calls have failed, then `end`. Afterwards, each client must swap
    /// again.
    pub async fn run_through<R: Register>(
        self,
        register: &Arc<R>,
        begin: impl FnOnce(),
        end: impl FnOnce(),
    ) -> Self {
        let key = self.workload.keys()[0].clone();
        let fault = async {
            begin();
            let failure = async {
                while register.load(&key).await.is_ok() {
                    tokio::task::yield_now().await;
                }
            };
            within("a failure of the register", failure).await;
            end();
        };
        self.run_during(register, WINS, fault)
            .await
            .run(register, 1)
            .await
    }

    /// Loads all keys, and checks the history of all clients.
    ///
    /// # Errors
    /// The first violation found.
    pub async fn check<R: Register>(mut self, register: &R) -> Result<(), Violation> {
        if let Some(client) = self.members.first_mut() {
            client
                .load_all(register, || self.ticks.fetch_add(1, Ordering::SeqCst))
                .await;
        }
        let operations: Vec<Operation> = self
            .members
            .into_iter()
            .flat_map(Client::into_history)
            .collect();
        history::check(&operations)
    }
}
