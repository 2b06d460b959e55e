//! Get Block List.

use http::header::{ETAG, LAST_MODIFIED};
use http::{HeaderName, Response};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::documents::DocumentMemory;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{BlobInfo, Reading};
use ifmatch_core::lease::SeenLease;

use super::committed::CommittedList;
use super::staging::BlobPaths;
use crate::error::AzureError;
use crate::request::BlockId;
use crate::request::GetBlockList;
use crate::response::{self, XmlWriter};
use crate::write::require_block_blob;

const CONTENT_LENGTH: HeaderName = HeaderName::from_static("x-ms-blob-content-length");

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
    } = get;
    // Nothing ends a list early, so what it is built from counts, too.
    let mut memory = context
        .documents
        .begin_answer(client)
        .map_err(AzureError::crowded)?;
    let store = &*context.store;
    let paths = BlobPaths::of(context, blob).await?;
    let staged = paths.staged(store, Some(&mut memory)).await?;
    let (info, list) = find(context, blob, &paths, &mut memory).await?;
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
        headers.insert(CONTENT_LENGTH, info.length.into());
    }
    Ok(response)
}

/// Returns the properties of the blob and the blocks of the same version. The list of a version that is replaced since is removed.
async fn find(
    context: &Context,
    blob: &BlobPath,
    paths: &BlobPaths,
    memory: &mut DocumentMemory,
) -> Result<(Option<BlobInfo>, Option<CommittedList>), AzureError> {
    let mut before = None;
    loop {
        let opened = context
            .store
            .open(blob, Reading::HEAD)
            .await
            .map_err(AzureError::of_blob)?;
        let Some(info) = opened.map(|opened| opened.info) else {
            return Ok((None, None));
        };
        let list = CommittedList::find(&*context.store, paths, &info, Some(memory)).await?;
        let id = info.headers.block_list.clone();
        if list.is_some() || id.is_none() || id == before {
            return Ok((Some(info), list));
        }
        before = id;
    }
}

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
