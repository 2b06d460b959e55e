//! Get Block List.

use http::header::{ETAG, LAST_MODIFIED};
use http::{HeaderName, Response};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::Reading;
use ifmatch_core::lease::SeenLease;

use crate::block_storage::open_with_list;
use crate::error::AzureError;
use crate::request::BlockId;
use crate::request::GetBlockList;
use crate::response::{self, XmlWriter};
use crate::snapshots;
use crate::write::require_block_blob;

const BLOB_CONTENT_LENGTH: HeaderName = HeaderName::from_static("x-ms-blob-content-length");

/// Get Block List.
pub(crate) async fn get_block_list(
    context: &Context,
    blob: &BlobPath,
    get: GetBlockList,
) -> Result<Response<BlobBody>, AzureError> {
    let GetBlockList {
        client,
        committed,
        uncommitted,
        lease,
        snapshot,
    } = get;
    // Nothing ends a list early, so what it is built from counts, too.
    let mut memory = context
        .documents
        .begin_answer(client)
        .map_err(AzureError::crowded)?;
    let store = &*context.store;
    let paths = snapshots::block_paths(context, blob, snapshot).await?;
    let staged = paths.staged(store, Some(&mut memory)).await?;
    let open = || snapshots::open(context, blob, snapshot, Reading::HEAD);
    let (info, list) = open_with_list(store, &paths, Some(&mut memory), open)
        .await?
        .map(|(opened, list)| (opened.info, list))
        .unzip();
    SeenLease::check(info.as_ref().and_then(|info| info.lease.as_ref()), lease)
        .map_err(AzureError::of_blob)?;
    require_block_blob(info.as_ref())?;
    if info.is_none() && staged.is_empty() {
        return Err(AzureError::blob_not_found());
    }
    let mut xml = XmlWriter::begin("BlockList");
    if committed {
        let blocks = list
            .iter()
            .flatten()
            .flat_map(|list| &list.blocks)
            .map(|(id, length)| (id, *length));
        add(&mut xml, "CommittedBlocks", blocks);
    }
    if uncommitted {
        add(
            &mut xml,
            "UncommittedBlocks",
            staged.iter().map(|(id, block)| (id, block.length)),
        );
    }
    memory.grow(xml.len()).map_err(AzureError::crowded)?;
    let mut response = response::document(memory.hold(xml.end("BlockList")));
    if let Some(info) = &info {
        let headers = response.headers_mut();
        headers.extend(info.tag.as_ref().map(|tag| (ETAG, tag.to_header())));
        headers.insert(LAST_MODIFIED, info.last_modified.to_header());
        headers.insert(BLOB_CONTENT_LENGTH, info.length.into());
    }
    Ok(response)
}

/// Adds an element with these blocks and their lengths.
fn add<'a>(xml: &mut XmlWriter, name: &str, blocks: impl Iterator<Item = (&'a BlockId, u64)>) {
    xml.open(name);
    for (id, length) in blocks {
        xml.open("Block");
        xml.text("Name", &id.to_base64());
        xml.text("Size", &length.to_string());
        xml.close("Block");
    }
    xml.close(name);
}
