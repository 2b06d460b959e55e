//! Giving back room while the gateway runs: blocks that nobody committed, entities of tables that are gone.

use std::time::Duration;

use ifmatch_azure_tables::TableService;
use ifmatch_blob::BlobService;

/// How long to wait from one round to the next.
const PAUSE: Duration = Duration::from_hours(24);

/// Collects at once and then every day, beside all requests, as long as the program runs.
pub(crate) async fn run(blobs: BlobService, tables: TableService) {
    loop {
        match ifmatch_azure::collect_blocks(blobs.context()).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "blocks that nobody committed were removed"),
            Err(error) => tracing::warn!(%error, "blocks that nobody committed are still there"),
        }
        match tables.collect().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "entities of deleted tables were removed"),
            Err(error) => tracing::warn!(%error, "entities of deleted tables still take room"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
