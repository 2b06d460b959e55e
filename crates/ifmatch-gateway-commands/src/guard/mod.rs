//! `ifmatch lock` and `ifmatch elect`: run a command while this process holds a lock.

mod child;

use std::convert::Infallible;
use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use futures_util::future::{Either, select};
use ifmatch_client::{Client, Document, Error as ClientError, ErrorKind, Held, Lock};
use ifmatch_core::lock::{LockRecord, MIN_TTL};
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::units::{InvalidQuantity, Span};
use percent_encoding::percent_decode_str;
use tokio::time::{sleep, timeout};

use self::child::CommandEnd;
use super::http_client::{GIVE_TOKEN, RemoteArgs, explained};
use super::runtime::block_on;
use super::store_url::{ObjectPlace, is_store};
use crate::platform::{ForwardedSignals, ReceivedSignal};
use crate::terminal::printable;

/// Exit code of `ifmatch lock` if the lock was lost.
const LOST: u8 = 70;
/// Exit code of `ifmatch lock` if the lock wasn't acquired in time.
const NOT_ACQUIRED: u8 = 75;
/// Exit code if the command can't be started, as of shells.
const NOT_STARTED: u8 = 127;
/// In the error of a resource whose versions can't be told apart.
const NO_TAG: &str = "the server sends no strong ETag";
/// Time for a lock to be released, after a signal has ended its acquisition.
const GIVING_UP: Duration = Duration::from_secs(5);
/// Time after which a wait for the lock is reported.
const QUIET: Duration = Duration::from_secs(1);
/// Time after which a server that doesn't respond is reported.
const PATIENCE: Duration = Duration::from_secs(10);

/// `ifmatch lock …`
#[derive(Args)]
pub struct LockArgs {
    #[command(flatten)]
    guard: GuardArgs,

    /// Maximum time to wait for the lock; 0s tries once [default: no limit].
    ///
    /// Must exceed the holder's time to live to take over the lock of a crashed machine.
    #[arg(long, value_name = "TIME")]
    wait: Option<Span>,

    /// Skip the command if another holder is alive; take over the lock of a crashed machine.
    ///
    /// Deciding takes up to a third of the holder's time to live if the holder is alive, and all of it if the holder crashed.
    #[arg(long, conflicts_with = "wait")]
    unless_held: bool,
}

/// `ifmatch elect …`
#[derive(Args)]
pub struct ElectArgs {
    #[command(flatten)]
    guard: GuardArgs,
}

/// Options of the lock, and the command.
#[derive(Args)]
struct GuardArgs {
    /// URL of the lock, such as `http://127.0.0.1:10000/locks/backup` or `s3://bucket/locks/backup`.
    ///
    /// The lock is a path on a gateway or on any server with strong entity tags and conditional PUT, or an object:
    /// `s3://bucket/key`, `az://container/blob` or `gs://bucket/key`. A query, such as a shared access signature, is sent with every
    /// request.
    url: String,

    /// Time to live, at least 3s: how long others wait after a crash.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time_to_live)]
    ttl: Span,

    #[arg(long, help = "Holder name [default: process ID]")]
    name: Option<String>,

    #[command(flatten)]
    remote: RemoteArgs,

    /// Command to run, with its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The end of the help of `ifmatch lock`.
pub const LOCK_EXAMPLES: &str = "\
Examples:
  Back up on one machine at a time, and wait up to five minutes:
    ifmatch lock https://blobs.example.com/locks/backup --wait 5m -- ./backup.sh

  Skip the run if another machine is running it, or started it within the last minute:
    ifmatch lock https://blobs.example.com/locks/report --unless-held \\
        -- sh -c './report.sh; sleep 60'

  Keep the lock in a bucket, without a server:
    AWS_REGION=eu-west-1 ifmatch lock s3://my-bucket/locks/backup -- ./backup.sh

Credentials and region of a store come from the environment, as for `ifmatch serve --store`. To trust a store's certificate \
authority, set SSL_CERT_FILE: --ca is for https URLs.

The command gets IFMATCH_FENCE, a number that grows with each holder, and IFMATCH_LEASE_ID, a random ID for logs. Send the number \
with every write, and let the receiver reject smaller ones: a command that was paused for long could otherwise overwrite the work \
of the next holder.

If the lock is lost, the command gets SIGTERM, then SIGKILL before another machine can acquire the lock. Signals to this process \
are passed on, except SIGKILL: the command then keeps running without the lock.

Exit codes:
  70   lock lost
  75   lock not acquired in time
  2    invalid flags
  127  the command can't be started
  otherwise the command's own, or 128+N if signal N ended it";

/// The end of the help of `ifmatch elect`.
pub const ELECT_EXAMPLES: &str = "\
Examples:
  Send mail from one of several machines, with the others on standby:
    ifmatch elect https://blobs.example.com/leaders/mail \\
        --name \"$(hostname)\" -- ./mailer

  The same without a server:
    ifmatch elect gs://my-bucket/leaders/mail --name \"$(hostname)\" -- ./mailer

The command starts when this process becomes the leader, with IFMATCH_FENCE and IFMATCH_LEASE_ID as for `ifmatch lock`. It stops \
when leadership is lost, and starts again when it is regained. If the command exits, this process exits with the same code.";

/// Parses the time to live of a lock.
fn time_to_live(text: &str) -> Result<Span, String> {
    let ttl: Span = text
        .parse()
        .map_err(|error: InvalidQuantity| error.to_string())?;
    let is_enough = ttl.duration() >= MIN_TTL;
    is_enough.then_some(ttl).ok_or_else(|| {
        format!(
            "a lock's time to live must be at least {}s",
            MIN_TTL.as_secs()
        )
    })
}

/// Runs a command under a lock, and returns the exit code.
///
/// # Errors
/// Fails if the settings are invalid, or the server rejects the requests.
pub fn lock(args: &LockArgs) -> Result<u8, Error> {
    block_on(async {
        let mut signals = listen()?;
        let (client, lock, record) = args.guard.lock().await?;
        let acquire = async {
            match args.wait {
                _ if args.unless_held => lock.acquire_unless_held().await,
                Some(limit) => lock.acquire_within(limit.duration()).await,
                None => args.guard.acquire(&lock).await.map(Some),
            }
        };
        let acquired = tokio::select! {
            acquired = with_notice(&record, acquire) => acquired,
            signal = signals.next() => return Ok(give_up(&client, signal, &mut signals).await),
        };
        let held = match acquired {
            Ok(Some(held)) => held,
            Ok(None) => {
                let advice = match args.wait {
                    Some(wait) if !wait.duration().is_zero() => {
                        format!("It wasn't released within {wait}: try again later.")
                    }
                    _ => "Wait for it with --wait TIME, or try again later.".to_owned(),
                };
                complain(&format!("another holder has the lock. {advice}"));
                return Ok(NOT_ACQUIRED);
            }
            Err(error) if *error.kind() == ErrorKind::Unknown => {
                complain(&args.guard.explained(&error));
                return Ok(NOT_ACQUIRED);
            }
            Err(error) => return Err(args.guard.failed(&error)),
        };
        let end = args.guard.run(&held, &mut signals).await;
        args.guard.release(held, &mut signals).await;
        Ok(match end {
            CommandEnd::Exited(code) => code,
            CommandEnd::Lost => {
                complain("the lock was lost, so the command was stopped");
                LOST
            }
        })
    })
}

/// Handles the signals, which no longer end this process by themselves.
fn listen() -> Result<ForwardedSignals, Error> {
    ForwardedSignals::listen()
        .map_err(|error| Error::runtime(format!("can't handle signals: {error}")))
}

/// Runs a command whenever this process is the leader, and returns the exit code.
///
/// # Errors
/// Fails if the settings are invalid, or the server rejects the requests.
pub fn elect(args: &ElectArgs) -> Result<u8, Error> {
    block_on(async {
        let mut signals = listen()?;
        let (client, lock, record) = args.guard.lock().await?;
        loop {
            let acquired = tokio::select! {
                acquired = with_notice(&record, args.guard.acquire(&lock)) => acquired,
                signal = signals.next() => return Ok(give_up(&client, signal, &mut signals).await),
            };
            let held = acquired.map_err(|error| args.guard.failed(&error))?;
            let end = args.guard.run(&held, &mut signals).await;
            args.guard.release(held, &mut signals).await;
            match end {
                CommandEnd::Exited(code) => return Ok(code),
                CommandEnd::Lost => complain("leadership was lost, so the command was stopped"),
            }
        }
    })
}

impl GuardArgs {
    /// Returns the lock, its client, and the document with its record.
    async fn lock(&self) -> Result<(Client, Lock, Document<LockRecord>), Error> {
        let (client, key) = if is_store(&self.url) {
            self.of_object().await?
        } else {
            self.of_resource()?
        };
        let record = client.json(key.clone());
        let lock = client.lock(key).ttl(self.ttl.duration());
        let lock = match &self.name {
            Some(name) => lock.holder(name.as_str()),
            None => lock,
        };
        Ok((client, lock, record))
    }

    /// Returns the client and the key of an object.
    async fn of_object(&self) -> Result<(Client, String), Error> {
        let ObjectPlace { objects, path } = self.remote.place(&self.url).await?;
        if path.is_empty() {
            return Err(Error::usage(format!(
                "{} is a bucket, not the URL of an object. Add a key, such as {0}/locks/backup.",
                self.url.trim_end_matches('/')
            )));
        }
        Ok((Client::new(objects), path))
    }

    /// Returns the client and the key of an HTTP resource.
    fn of_resource(&self) -> Result<(Client, String), Error> {
        let example = "http://127.0.0.1:10000/locks/backup or s3://bucket/locks/backup";
        let (url, query) = match self.url.split_once('?') {
            Some((url, query)) => (url, format!("?{query}")),
            None => (self.url.as_str(), String::new()),
        };
        let wrong = || {
            Error::usage(format!(
                "{url} is not the URL of a lock. Use one such as {example}."
            ))
        };
        if !["http://", "https://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            return Err(wrong());
        }
        let (folder, key) = url
            .trim_end_matches('/')
            .rsplit_once('/')
            .ok_or_else(wrong)?;
        if folder.ends_with(":/") {
            return Err(Error::usage(format!(
                "{url} names a server, not a lock. Add a path, such as {example}."
            )));
        }
        let key = percent_decode_str(key).decode_utf8().map_err(|_| wrong())?;
        let server = self.remote.connect(&format!("{folder}{query}"))?;
        Ok((Client::new(server), key.into_owned()))
    }

    /// Acquires the lock, however long that takes. Reports a server that doesn't respond, once until it responds again.
    async fn acquire(&self, lock: &Lock) -> Result<Held, ClientError> {
        let mut is_reported = false;
        loop {
            match lock.acquire_within(PATIENCE).await {
                Ok(Some(held)) => return Ok(held),
                Ok(None) => is_reported = false,
                Err(error) if *error.kind() == ErrorKind::Unknown => {
                    if !is_reported {
                        complain(&format!(
                            "{}. Retrying until the server responds.",
                            self.explained(&error)
                        ));
                    }
                    is_reported = true;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs the command until it ends, or until the lock is lost.
    async fn run(&self, held: &Held, signals: &mut ForwardedSignals) -> CommandEnd {
        match child::run(&self.command, held, grace(self.ttl.duration()), signals).await {
            Ok(end) => end,
            Err(error) => {
                let command = self
                    .command
                    .first()
                    .map(|command| command.to_string_lossy())
                    .unwrap_or_default();
                complain(&format!(
                    "can't start {command}: {error}. Check its path and its permissions."
                ));
                CommandEnd::Exited(NOT_STARTED)
            }
        }
    }

    /// Releases the lock. A signal ends the wait for the server.
    async fn release(&self, held: Held, signals: &mut ForwardedSignals) {
        let why = tokio::select! {
            released = held.release() => match released {
                Ok(()) => return,
                Err(error) => format!("releasing it failed ({error})"),
            },
            _ = signals.next() => "a signal interrupted the release".to_owned(),
        };
        complain(&format!("the lock may stay held for {}: {why}", self.ttl));
    }

    /// Returns the error of a command that can't use the lock, with what to do.
    fn failed(&self, error: &ClientError) -> Error {
        let url = self.shown_url();
        let text = error.to_string();
        let is_unfit = text.starts_with("405") || text.contains(NO_TAG);
        Error::runtime(match text.get(..3) {
            _ if is_unfit => {
                let why = if text.contains(NO_TAG) {
                    format!(" ({NO_TAG})")
                } else {
                    String::new()
                };
                format!(
                    "{url} can't hold a lock{why}. Use the URL of a document in a folder, such as {url}/backup."
                )
            }
            Some("401") => {
                format!("{url} rejected the request (401). Pass a valid token {GIVE_TOKEN}.")
            }
            Some("403") => format!("{url} requires a write token (403). Pass one {GIVE_TOKEN}."),
            _ => self.explained(error),
        })
    }

    /// Describes an error, with the URL once.
    fn explained(&self, error: &ClientError) -> String {
        explained(self.shown_url(), &error.to_string())
    }

    /// Returns the URL without the query, which may contain a signature.
    fn shown_url(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }
}

/// Waits for an acquisition, and says once who holds the lock if it takes long.
async fn with_notice<T>(record: &Document<LockRecord>, acquire: impl Future<Output = T>) -> T {
    let notice = async {
        sleep(QUIET).await;
        if let Ok(Some(found)) = record.get().await
            && found.value.held
        {
            complain(&format!(
                "waiting for the lock held by {}",
                printable(&found.value.holder)
            ));
        }
        std::future::pending::<Infallible>().await
    };
    match select(pin!(acquire), pin!(notice)).await {
        Either::Left((acquired, _)) => acquired,
        Either::Right((never, _)) => match never {},
    }
}

/// Ends an acquisition after a signal, and returns the exit code. Waits until a lock that was acquired nevertheless has been
/// released, but not for a server that doesn't respond, and not after a second signal.
async fn give_up(client: &Client, signal: ReceivedSignal, signals: &mut ForwardedSignals) -> u8 {
    tokio::select! {
        late = timeout(GIVING_UP, client.released()) => if late.is_err() {
            complain("the server doesn't respond. If it granted the lock, it stays held for its time to live.");
        },
        _ = signals.next() => {}
    }
    signal.exit_code()
}

/// Returns the time between SIGTERM and SIGKILL: half of that before another holder can begin. The rest is for clocks of
/// different rates, and for a machine that is busy.
fn grace(ttl: Duration) -> Duration {
    ifmatch_core::lock::margin(ttl) / 2
}

/// Prints a message to stderr.
#[expect(clippy::print_stderr, reason = "the messages of a command")]
fn complain(message: &str) {
    eprintln!("ifmatch: {message}");
}

#[cfg(test)]
mod tests {
    use ifmatch_core::date::Timestamp;
    use ifmatch_core::lock::deadline;

    use super::*;

    /// The challenger has seen the version as early as it was sent, and its clock is faster.
    #[test]
    fn a_command_is_killed_before_another_holder_can_begin() {
        for ttl in [MIN_TTL, Duration::from_secs(30), Duration::from_hours(1)] {
            let sent = Timestamp::from_micros(0);
            let killed = sent.until(deadline(sent, ttl)) + grace(ttl);
            assert!(killed.mul_f64(1.03) < ttl, "{killed:?} of {ttl:?}");
        }
    }
}
