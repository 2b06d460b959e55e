//! The processes of a soak test, each with a network of its own to the servers.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use ifmatch_register::Register;
use ifmatch_register::conformance::history::Operation;
use ifmatch_register::conformance::workload::Client;
use ifmatch_testbed::{Proxy, Server};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::journal::{Reader, Writer};
use super::workload;
use crate::engine::{Engine, url};
use crate::{Result, now};

/// Pause between looks at the journals.
const PAUSE: Duration = Duration::from_millis(50);
/// Time without any progress after which the register hasn't come back, far beyond the expected time.
const PATIENCE: Duration = Duration::from_mins(3);

/// The servers and the processes.
pub(super) struct Team {
    engine: Engine,
    pub(super) servers: Vec<Server>,
    pub(super) processes: Vec<Process>,
    folder: TempDir,
    /// Journals of killed processes.
    past: Vec<Reader>,
    started: usize,
    /// Times at which a process was suspended, and its calls took longer.
    pauses: Vec<(u64, u64)>,
}

/// A process.
pub(super) struct Process {
    pub(super) proxies: Vec<Proxy>,
    url: String,
    child: Child,
    journal: Reader,
}

impl Team {
    pub(super) async fn start(engine: Engine, processes: u8) -> Result<Self> {
        let servers = engine.start().await?;
        let folder = tempfile::tempdir()?;
        let mut team = Self {
            engine,
            servers,
            processes: Vec::new(),
            folder,
            past: Vec::new(),
            started: 0,
            pauses: Vec::new(),
        };
        for _ in 0..processes {
            let mut proxies = Vec::new();
            for server in &team.servers {
                proxies.push(Proxy::start(server.address()).await);
            }
            let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
            let url = url(&team.servers, &addresses);
            let (child, journal) = team.spawn(&url)?;
            team.processes.push(Process {
                proxies,
                url,
                child,
                journal,
            });
        }
        Ok(team)
    }

    fn spawn(&mut self, url: &str) -> Result<(Child, Reader)> {
        let journal: PathBuf = self.folder.path().join(self.started.to_string());
        let child = Command::new(std::env::current_exe()?)
            .args(["worker", "--engine", self.engine.name(), "--url", url])
            .args([
                "--first",
                &(self.started * CLIENTS).to_string(),
                "--journal",
            ])
            .arg(&journal)
            .stdin(Stdio::piped())
            .spawn()?;
        self.started += 1;
        Ok((child, Reader::of(&journal)))
    }

    /// Starts a process in place of one that was killed.
    pub(super) fn replace(&mut self, process: usize) -> Result {
        let url = self.processes[process].url.clone();
        let (child, journal) = self.spawn(&url)?;
        let replaced = &mut self.processes[process];
        replaced.child = child;
        self.past
            .push(std::mem::replace(&mut replaced.journal, journal));
        Ok(())
    }

    /// Suspends a process for a while.
    pub(super) async fn pause_process(&mut self, process: usize, hold: Duration) {
        let started = now();
        self.processes[process].signal(Signal::STOP);
        tokio::time::sleep(hold).await;
        self.processes[process].signal(Signal::CONT);
        self.pauses.push((started, now()));
    }

    /// Returns the number of operations so far.
    pub(super) fn operations(&mut self) -> Result<usize> {
        let mut operations = 0;
        for journal in self
            .processes
            .iter_mut()
            .map(|process| &mut process.journal)
            .chain(&mut self.past)
        {
            journal.read()?;
            operations += journal.operations();
        }
        Ok(operations)
    }

    /// Waits until this number of operations took place, and each process has swapped.
    pub(super) async fn until_progress(&mut self, operations: usize) -> Result {
        let goal = self.operations()? + operations;
        let swaps: Vec<usize> = self
            .processes
            .iter()
            .map(|process| process.journal.swaps())
            .collect();
        let mut waited = Duration::ZERO;
        let mut before = 0;
        loop {
            let reached = self.operations()?;
            let mut stuck = self
                .processes
                .iter()
                .zip(&swaps)
                .filter(|(process, swaps)| process.journal.swaps() <= **swaps);
            if reached >= goal && stuck.next().is_none() {
                return Ok(());
            }
            for process in &mut self.processes {
                if let Some(status) = process.child.try_wait()? {
                    return Err(format!("a process has ended: {status}").into());
                }
            }
            waited = if reached > before && reached < goal {
                Duration::ZERO
            } else {
                waited + PAUSE
            };
            if waited > PATIENCE {
                return Err(
                    format!("the register has not come back, after {reached} operations").into(),
                );
            }
            before = reached;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Ends the processes. Returns a register of its own, all operations, and the duration of the longest call.
    pub(super) async fn finish(&mut self) -> Result<(Arc<dyn Register>, Vec<Operation>, Duration)> {
        for process in &mut self.processes {
            drop(process.child.stdin.take());
        }
        for process in &mut self.processes {
            let status = process.child.wait()?;
            if !status.success() {
                return Err(format!("a process has failed: {status}").into());
            }
        }
        self.operations()?;
        let addresses: Vec<_> = self.servers.iter().map(Server::address).collect();
        let register = timeout(
            PATIENCE,
            self.engine.connect(&url(&self.servers, &addresses)),
        )
        .await
        .map_err(|_| "the servers have not come back")??;
        for process in self.processes.drain(..) {
            self.past.push(process.journal);
        }
        let journals = std::mem::take(&mut self.past).into_iter();
        let operations: Vec<Operation> = journals.flat_map(Reader::into_operations).collect();
        let longest = self.longest(&operations);
        Ok((register, operations, longest))
    }

    /// Returns the duration of the longest call that no pause overlaps.
    fn longest(&self, operations: &[Operation]) -> Duration {
        let is_paused = |operation: &&Operation| {
            self.pauses
                .iter()
                .any(|(started, ended)| operation.started <= *ended && operation.ended >= *started)
        };
        let calls = operations.iter().filter(|operation| !is_paused(operation));
        Duration::from_nanos(
            calls
                .map(|operation| operation.ended - operation.started)
                .max()
                .unwrap_or_default(),
        )
    }
}

impl Process {
    pub(super) fn kill(&mut self) -> Result {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It may have ended.
        id.map(|id| kill_process(id, signal));
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It may have ended already.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

/// Number of clients of a process.
pub(super) const CLIENTS: usize = 24;
/// Pause of a client after a failure.
const RETRY: Duration = Duration::from_millis(10);

/// Options of a process.
#[derive(Args)]
pub(crate) struct WorkerOptions {
    #[arg(long, value_enum)]
    engine: Engine,
    #[arg(long)]
    url: String,
    /// Number of the first client.
    #[arg(long)]
    first: usize,
    #[arg(long)]
    journal: PathBuf,
}

/// Runs the clients until standard input ends.
pub(crate) async fn work(options: WorkerOptions) -> Result {
    let writer = Writer::create(&options.journal)?;
    let register = connect(&options).await;
    let (workload, is_over) = (workload("soak"), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (writer, is_over) = (writer.clone(), Arc::clone(&is_over));
            let client = workload
                .client(options.first + number)
                .with_journal(move |operation| {
                    if let Err(error) = writer.write(operation) {
                        panic!("the journal is incomplete: {error}");
                    }
                });
            tokio::spawn(run(client, register.clone(), is_over))
        })
        .collect();
    // Also ends if the first process does.
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await?;
    }
    Ok(())
}

/// Connects, again after failures: the process may start in the middle of a fault. The first process notices if there is no
/// progress, and ends this one.
async fn connect(options: &WorkerOptions) -> Arc<dyn Register> {
    loop {
        match options.engine.connect(&options.url).await {
            Ok(register) => return register,
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn run(mut client: Client, register: Arc<dyn Register>, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::SeqCst) {
        if !client.step(&register, now).await {
            tokio::time::sleep(RETRY).await;
        }
        tokio::task::yield_now().await;
    }
}
