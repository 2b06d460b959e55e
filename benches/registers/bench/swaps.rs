//! Clients that swap or load records of their own, and count.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::Method;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register, Swap};
use ifmatch_testbed::Server;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process;

use super::{KEYS, RECORD, Round};
use crate::engine::Engine;
use crate::{Result, now};

/// The call that each client repeats.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Swap,
    Load,
}

/// Calls in some time.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub(super) calls: f64,
    pub(super) seconds: f64,
    /// Duration of each call in nanoseconds, if known.
    pub(super) durations: Vec<u64>,
}

/// Options of a process that swaps.
#[derive(Args)]
pub(crate) struct SwapOptions {
    #[arg(long, value_enum)]
    engine: Engine,
    #[arg(long)]
    url: String,
    #[arg(long)]
    clients: usize,
    /// Number of this process, for keys of its own.
    #[arg(long)]
    process: usize,
    #[arg(long)]
    processes: usize,
    #[arg(long)]
    millis: u64,
}

/// Swaps for a while, once a line arrives, and prints the number of swaps.
pub(crate) async fn swap(options: SwapOptions) -> Result {
    let register = options.engine.connect(&options.url).await?;
    let share = KEYS / options.processes;
    let clients = Clients::load(&register, options.process * share, share, options.clients).await?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let (_, counted) = clients
        .run(&register, Duration::from_millis(options.millis))
        .await?;
    println!("{} {}", counted.calls, counted.seconds);
    Ok(())
}

/// Lets several processes swap at the same time, and measures the server's CPU time meanwhile.
pub(super) async fn in_processes(
    engine: Engine,
    server: &Server,
    processes: usize,
    clients: usize,
    time: Duration,
) -> Result<Round> {
    let mut children = Vec::new();
    for process in 0..processes {
        let mut child = process::Command::new(std::env::current_exe()?)
            .args([
                "swaps",
                "--engine",
                engine.name(),
                "--url",
                &server.url(),
                "--clients",
                &clients.to_string(),
            ])
            .args([
                "--process",
                &process.to_string(),
                "--processes",
                &processes.to_string(),
            ])
            .args(["--millis", &time.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or("a process has no output")?;
        let mut lines = BufReader::new(output).lines();
        lines.next_line().await?.ok_or("a process has ended")?;
        children.push((child, lines));
    }
    let cpu = server.cpu();
    for (child, _) in &mut children {
        child
            .stdin
            .take()
            .ok_or("a process has no input")?
            .write_all(b"go\n")
            .await?;
    }
    let mut total = Counted::default();
    for (mut child, mut lines) in children {
        let line = lines.next_line().await?.ok_or("a process has ended")?;
        let (swaps, seconds) = line
            .split_once(' ')
            .ok_or_else(|| format!("a process prints {line:?} in place of two numbers"))?;
        total.calls += swaps.parse::<f64>()?;
        total.seconds = total.seconds.max(seconds.parse()?);
        child.wait().await?;
    }
    Ok(total.round(server.cpu() - cpu))
}

/// Clients with the records that they swap.
pub(super) struct Clients(Vec<Vec<(Key, Record)>>);

impl Clients {
    /// Loads records, or creates them, and divides them among clients.
    pub(super) async fn load(
        register: &Arc<dyn Register>,
        first: usize,
        count: usize,
        clients: usize,
    ) -> Result<Self> {
        let mut loading = tokio::task::JoinSet::new();
        let share = count / clients;
        for client in 0..clients {
            let register = register.clone();
            loading.spawn(async move {
                let mut records = Vec::with_capacity(share);
                for number in 0..share {
                    let key = Key::new(format!("bench/{:05}", first + client * share + number))?;
                    let record = if let Some(record) = register.load(&key).await? {
                        record
                    } else {
                        let record = after(&Record::absent());
                        register
                            .compare_and_swap(&key, Revision::NONE, Some(&record))
                            .await?;
                        record
                    };
                    records.push((key, record));
                }
                Result::<_>::Ok(records)
            });
        }
        let mut all = Vec::new();
        while let Some(records) = loading.join_next().await {
            all.push(records??);
        }
        Ok(Self(all))
    }

    /// Swaps for a while. Each swap must succeed, since each client has records of its own.
    pub(super) async fn run(
        self,
        register: &Arc<dyn Register>,
        time: Duration,
    ) -> Result<(Self, Counted)> {
        let registers = vec![register.clone(); self.0.len()];
        self.run_on(&registers, Operation::Swap, time).await
    }

    /// Swaps or loads for a while, each client through a register of its own.
    pub(super) async fn run_on(
        self,
        registers: &[Arc<dyn Register>],
        operation: Operation,
        time: Duration,
    ) -> Result<(Self, Counted)> {
        let started = now();
        let end = started + u64::try_from(time.as_nanos())?;
        let mut running = tokio::task::JoinSet::new();
        for (mut records, register) in self.0.into_iter().zip(registers.to_vec()) {
            running.spawn(async move {
                let (mut durations, mut at) = (Vec::new(), 0);
                let mut before = now();
                while before < end {
                    let count = records.len();
                    let (key, record) = &mut records[at % count];
                    // Not in the order of the keys.
                    at += 7;
                    operation.call(&register, key, record).await?;
                    let ended = now();
                    durations.push(ended - before);
                    before = ended;
                }
                Result::<_>::Ok((records, durations))
            });
        }
        let (mut all, mut durations) = (Vec::new(), Vec::new());
        while let Some(client) = running.join_next().await {
            let (records, its) = client??;
            all.push(records);
            durations.extend(its);
        }
        let seconds = Duration::from_nanos(now() - started).as_secs_f64();
        Ok((
            Self(all),
            Counted {
                calls: f64::from(u32::try_from(durations.len())?),
                seconds,
                durations,
            },
        ))
    }
}

impl Operation {
    /// Calls the register once. A swap must succeed, since its client is the only writer of the key.
    async fn call(self, register: &Arc<dyn Register>, key: &Key, record: &mut Record) -> Result {
        match self {
            Self::Load => drop(register.load(key).await?.ok_or("a record is missing")?),
            Self::Swap => {
                let next = after(record);
                match register
                    .compare_and_swap(key, record.revision(), Some(&next))
                    .await?
                {
                    Swap::Done => *record = next,
                    Swap::Conflict(_) => return Err(format!("{key} has another writer").into()),
                }
            }
        }
        Ok(())
    }
}

/// Returns the next version of a record.
fn after(before: &Record) -> Record {
    // The rest of the encoded record takes about 80 bytes.
    let payload = vec![7; RECORD - 80];
    let content = Content::Hashed {
        hash: ContentHash::of(b"content"),
        payload: payload.into(),
    };
    let write = Write::new(
        &Method::PUT,
        &Preconditions::NONE,
        content,
        before.revision().get(),
    );
    before
        .apply(&Command::Write(write), before.revision().timestamp())
        .next
        .unwrap_or_else(Record::absent)
}

impl Counted {
    /// Returns the count of a tool that reports a rate and the mean duration in milliseconds, for a number of seconds.
    pub(super) fn of_rate(rate: f64, seconds: f64, mean: f64) -> Self {
        let nanos = Duration::from_secs_f64(mean / 1e3).as_nanos();
        let durations = vec![u64::try_from(nanos).unwrap_or(u64::MAX)];
        Self {
            calls: rate * seconds,
            seconds,
            durations,
        }
    }

    /// Returns the result of the round, given the server's CPU time in seconds.
    pub(super) fn round(mut self, cpu: f64) -> Round {
        self.durations.sort_unstable();
        let at = |hundredths: usize| {
            let place = self.durations.len() * hundredths / 100;
            self.durations.get(place).map_or(0.0, |nanos| {
                Duration::from_nanos(*nanos).as_secs_f64() * 1e3
            })
        };
        // A tool that reports the mean has no other durations.
        let slow = if self.durations.len() > 1 {
            at(99)
        } else {
            0.0
        };
        Round {
            rate: self.calls / self.seconds,
            cpu: cpu * 1e6 / self.calls,
            median: at(50),
            slow,
        }
    }
}
