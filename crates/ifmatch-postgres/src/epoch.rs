//! The epoch, which rises when another server has taken over.
//!
//! ```text
//!   primary            timeline 1 ── swap ── swap ✕
//!                            ╲ replication, which may lag
//!   standby                   ╲── swap ──── promoted: timeline 2
//!                                             the first connection raises the epoch, before its first load or swap
//! ```
//!
//! A promotion begins a new timeline, and a restored `pg_dump` creates new tables, with other object identifiers. The server
//! can't tell if it has all acknowledged swaps, which is certain only for a synchronous standby. The epoch is a row that is
//! replicated with the records, with the timeline and the table in which it began. Every new connection compares those with
//! the server's. A base backup that is started in place of the server has the same ones: the operator calls [`restored`]. No
//! connection survives a promotion, since a standby accepts none that writes. A server with an earlier epoch than one that was
//! found already is refused, and connections to it are replaced: a former primary that still runs, or was started again, lacks
//! the changes made since the promotion.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use ifmatch_core::record::Revision;
use ifmatch_register::{ConnectError, ConnectErrorKind, Epoch};
use tokio::time::timeout;

use crate::STATEMENT_LIMIT;
use crate::connection::{PostgresConnection, answered};
use crate::error::of_connection;
use crate::settings::{ConnectionSettings, each_host};

/// Time after a promotion up to which revisions count as lost: the new server's clock may be behind. Records
/// written meanwhile have later revisions all the same, since they follow doubted ones.
const MARGIN: Duration = Duration::from_mins(1);

/// The server, the history of changes that it continues, and the table.
const TIMELINE: &str = "(SELECT system_identifier FROM pg_control_system()) || '/' || \
     left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || 'ifmatch_epoch'::regclass::oid";

/// The latest epoch that any connection has found.
#[derive(Debug, Default)]
pub(crate) struct KnownEpoch(Mutex<Option<ServerEpoch>>);

/// The epoch of a server, and its timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServerEpoch {
    epoch: Epoch,
    timeline: String,
}

impl KnownEpoch {
    /// Returns the epoch.
    pub(crate) fn get(&self) -> Epoch {
        self.lock()
            .as_ref()
            .map_or_else(Epoch::default, |found| found.epoch)
    }

    /// Accepts the epoch of a server in place of the one found before.
    ///
    /// # Errors
    /// [`ConnectErrorKind::Unsuitable`] if the server lacks changes that this process may have seen.
    fn accept(&self, found: ServerEpoch) -> Result<(), ConnectError> {
        let mut known = self.lock();
        let before = known
            .as_ref()
            .map_or_else(Epoch::default, |known| known.epoch);
        let is_another = known
            .as_ref()
            .is_some_and(|known| known.timeline != found.timeline);
        if found.epoch < before || (found.epoch == before && is_another) {
            let text = "the server is a former primary, or another database: stop it, or, if it is the right one, restart all \
                        processes of ifmatch";
            return Err(ConnectError::new(ConnectErrorKind::Unsuitable, text));
        }
        if found.epoch > before {
            tracing::warn!(
                epoch = found.epoch.number,
                "another database server has taken over, or the tables were restored: unless it was a synchronous standby, \
                 acknowledged swaps may be lost; earlier versions of resources that can be probed count as unknown"
            );
        }
        *known = Some(found);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<ServerEpoch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects to each host of a URL that names several, and returns the connection to the primary with the latest epoch: a former
/// primary may still run, and accept writes. Returns `None` for a single host, or if no host can be used.
async fn find_latest(url: &str) -> Option<PostgresConnection> {
    let hosts = Some(each_host(url)).filter(|hosts| hosts.len() > 1)?;
    let found = join_all(hosts.iter().map(async |host| {
        let connection = ConnectionSettings::parse(host).ok()?.connect().await.ok()?;
        let found = timeout(STATEMENT_LIMIT, connection.find_epoch(false))
            .await
            .ok()?
            .ok()?;
        Some((found.epoch, connection))
    }));
    let latest = found
        .await
        .into_iter()
        .flatten()
        .max_by_key(|(epoch, _)| *epoch);
    latest.map(|(_, connection)| connection)
}

/// Begins an epoch after the tables were restored from a backup, so versions from before count as unknown where they can
/// be probed. Call this before any process uses the register again: a restored base backup can't be told from the server
/// that it replaces. Returns the number of the epoch.
///
/// # Errors
/// Same as [`PostgresRegister::connect`](crate::PostgresRegister::connect).
pub async fn restored(url: &str) -> Result<u64, ConnectError> {
    let connection = connect_to_latest(url, &ConnectionSettings::parse(url)?).await?;
    answered(async {
        connection.check_schema().await?;
        Ok(connection.find_epoch(true).await?.epoch.number)
    })
    .await
}

/// Connects to the primary with the latest epoch, if the URL names several hosts, and otherwise to its host.
pub(crate) async fn connect_to_latest(
    url: &str,
    settings: &ConnectionSettings,
) -> Result<PostgresConnection, ConnectError> {
    match find_latest(url).await {
        Some(latest) => Ok(latest),
        None => settings.connect().await,
    }
}

impl PostgresConnection {
    /// Finds the epoch, and raises it if the server is on a different timeline from the one on which it began.
    ///
    /// # Errors
    /// Same as [`KnownEpoch::accept`]; also fails if the server fails.
    pub(crate) async fn check_epoch(&self, known: &KnownEpoch) -> Result<Epoch, ConnectError> {
        let found = self.find_epoch(false).await?;
        let epoch = found.epoch;
        known.accept(found)?;
        Ok(epoch)
    }

    /// Finds the epoch, and raises it if the server continues another timeline, or if the tables were `restored`.
    async fn find_epoch(&self, restored: bool) -> Result<ServerEpoch, ConnectError> {
        let raise = format!(
            "UPDATE ifmatch_epoch SET timeline = {TIMELINE},
                number = number + (timeline <> '')::int,
                lost = CASE timeline WHEN '' THEN 0 ELSE
                    greatest(lost, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $1) END
            WHERE timeline <> {TIMELINE} OR $2"
        );
        let margin = i64::try_from(MARGIN.as_micros()).unwrap_or(i64::MAX);
        self.client
            .execute(&raise, &[&margin, &restored])
            .await
            .map_err(of_connection)?;
        let epoch = "SELECT number, lost, timeline FROM ifmatch_epoch";
        let row = self
            .client
            .query_one(epoch, &[])
            .await
            .map_err(of_connection)?;
        let (number, lost): (i64, i64) = (row.get(0), row.get(1));
        let epoch = Epoch {
            number: number.cast_unsigned(),
            lost: Revision::new(lost.cast_unsigned()),
        };
        Ok(ServerEpoch {
            epoch,
            timeline: row.get(2),
        })
    }

    /// Warns about a standby that may lack acknowledged swaps when it takes over.
    pub(crate) async fn warn_of_asynchronous_standbys(&self) -> Result<(), ConnectError> {
        let standbys = "SELECT count(*) FROM pg_stat_replication WHERE current_setting('synchronous_standby_names') = ''";
        let row = self
            .client
            .query_one(standbys, &[])
            .await
            .map_err(of_connection)?;
        if row.get::<_, i64>(0) > 0 {
            tracing::warn!(
                "the database server has a standby that is not synchronous: after its promotion, acknowledged swaps may be \
                 missing; set synchronous_standby_names"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_an_earlier_epoch_or_another_history_is_refused() {
        let found = |number, lost, timeline: &str| ServerEpoch {
            epoch: Epoch {
                number,
                lost: Revision::new(lost),
            },
            timeline: timeline.to_owned(),
        };
        let known = KnownEpoch::default();
        for (server, is_accepted) in [
            (found(0, 0, "1"), true),
            (found(0, 0, "1"), true),
            (found(0, 0, "other"), false),
            (found(1, 50, "2"), true),
            (found(0, 0, "1"), false),
            // Promoted without the epoch of the promotion before.
            (found(1, 90, "3"), true),
            (found(1, 50, "2"), false),
            (found(1, 90, "3"), true),
        ] {
            assert_eq!(
                known.accept(server.clone()).is_ok(),
                is_accepted,
                "{server:?}"
            );
        }
        assert_eq!(
            known.get(),
            Epoch {
                number: 1,
                lost: Revision::new(90)
            }
        );
    }
}
