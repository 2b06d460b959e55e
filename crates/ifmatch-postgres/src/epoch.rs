//! The epoch, which rises when another server has taken over.
//!
//! ```text
//!   primary            timeline 1 ── swap ── swap ✕
//!                            ╲ replication, which may lag
//!   standby                   ╲── swap ──── promoted: timeline 2
//!                                             the first connection raises the epoch, before its first load or swap
//! ```
//!
//! A promotion, and a restored backup, begin a new timeline. The server cannot tell if it has all acknowledged swaps, which is
//! certain only for a synchronous standby. The epoch is a row that is replicated with the records, with the timeline on which
//! it began. Every new connection compares that with the server's. No connection survives a promotion, since a standby
//! accepts none that writes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ifmatch_core::record::Revision;
use ifmatch_register::Epoch;

use crate::connection::Connection;
use crate::error::OpenError;

/// Time after a promotion up to which revisions count as lost, in seconds: the new server's clock may be behind. Records
/// written meanwhile have later revisions all the same, since they follow doubted ones.
const MARGIN: Duration = Duration::from_mins(1);

/// The server, and the history of changes that it continues.
const TIMELINE: &str =
    "(SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)";

/// The latest epoch that any connection has found.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Epoch>);

impl Known {
    pub(crate) fn get(&self) -> Epoch {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, found: Epoch) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if found > *known {
            tracing::warn!(
                epoch = found.number,
                "another database server has taken over: unless it was a synchronous standby, acknowledged swaps may be \
                 lost; earlier versions of resources that can be probed count as unknown"
            );
        }
        *known = found.max(*known);
    }
}

impl Connection {
    /// Finds the epoch, and raises it if the server continues another timeline than the one on which it began.
    pub(crate) async fn check_epoch(&self, known: &Known) -> Result<(), OpenError> {
        let raise = format!(
            "UPDATE ifmatch_epoch SET timeline = {TIMELINE},
                number = number + (timeline <> '')::int,
                lost = CASE timeline WHEN '' THEN 0 ELSE
                    greatest(lost, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $1) END
            WHERE timeline <> {TIMELINE}"
        );
        let margin = i64::try_from(MARGIN.as_micros()).unwrap_or(i64::MAX);
        self.client.execute(&raise, &[&margin]).await.map_err(OpenError::of)?;
        let row = self.client.query_one("SELECT number, lost FROM ifmatch_epoch", &[]).await.map_err(OpenError::of)?;
        let (number, lost): (i64, i64) = (row.get(0), row.get(1));
        known.set(Epoch { number: number.cast_unsigned(), lost: Revision::new(lost.cast_unsigned()) });
        Ok(())
    }

    /// Warns about a standby that may lack acknowledged swaps when it takes over.
    pub(crate) async fn warn_of_asynchronous_standbys(&self) -> Result<(), OpenError> {
        let standbys =
            "SELECT count(*) FROM pg_stat_replication WHERE current_setting('synchronous_standby_names') = ''";
        let row = self.client.query_one(standbys, &[]).await.map_err(OpenError::of)?;
        if row.get::<_, i64>(0) > 0 {
            tracing::warn!(
                "the database server has a standby that is not synchronous: after its promotion, acknowledged swaps may be \
                 missing; set synchronous_standby_names"
            );
        }
        Ok(())
    }
}
