//! Garbage collection: uncommitted blocks, uploads in parts, and entities of deleted tables.

use std::time::Duration;

use ifmatch_azure_tables::TableService;
use ifmatch_blob::BlobService;
use ifmatch_s3::S3Service;

/// Interval between runs.
const INTERVAL: Duration = Duration::from_hours(24);

/// Collects garbage now and then daily, until the process ends.
pub(crate) async fn run(blobs: BlobService, tables: TableService, objects: S3Service) {
    loop {
        match ifmatch_azure::collect_blocks(blobs.context()).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed uncommitted blocks"),
            Err(error) => tracing::warn!(%error, "cannot remove uncommitted blocks"),
        }
        match tables.collect().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed entities of deleted tables"),
            Err(error) => tracing::warn!(%error, "cannot remove entities of deleted tables"),
        }
        match objects.collect().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed unfinished uploads"),
            Err(error) => tracing::warn!(%error, "cannot remove unfinished uploads"),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
