//! Get Block List.

use http::header::{ETAG, LAST_MODIFIED};
use http::{HeaderName, Response};
use ifmatch_core::lease::{self, LeaseUse, azure};

use super::super::error::AzureError;
use super::super::xml::Xml;
use super::super::{Call, response};
use super::committed::CommittedList;
use super::{BlockId, Shelf};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{Reading, StoreErrorKind};

const TYPE: &str = "blocklisttype";
const CONTENT_LENGTH: HeaderName = HeaderName::from_static("x-ms-blob-content-length");

pub(crate) async fn get_list(call: &Call, blob: &BlobPath) -> Result<Response<BlobBody>, AzureError> {
    let (committed, uncommitted) = match call.query.get(TYPE).unwrap_or("committed").to_ascii_lowercase().as_str() {
        "committed" => (true, false),
        "uncommitted" => (false, true),
        "all" => (true, true),
        _ => return Err(AzureError::invalid_parameter(TYPE, "must be committed, uncommitted or all")),
    };
    let id = azure::id(&call.head.headers, azure::ID)?;
    let store = &*call.shared.store;
    let shelf = Shelf::of(call, blob).await?;
    let staged = shelf.staged(store).await?;
    let opened = store.open(blob, Reading::HEAD).await.map_err(AzureError::of_blob)?;
    let info = opened.map(|opened| opened.info);
    lease::check(info.as_ref().and_then(|info| info.lease.as_ref()), LeaseUse::Read(id), call.shared.now())
        .map_err(|failure| AzureError::of_blob(StoreErrorKind::LeaseFailed(failure)))?;
    let list = match &info {
        None if staged.is_empty() => return Err(AzureError::blob_not_found()),
        None => None,
        Some(info) => {
            let list = CommittedList::load(store, &shelf.list()?).await.map_err(AzureError::of_blob)?;
            list.filter(|list| list.belongs_to(info))
        }
    };
    let mut xml = Xml::begin("BlockList");
    if committed {
        let blocks = list.iter().flat_map(|list| &list.blocks).map(|(id, length)| (id, *length));
        add(&mut xml, "CommittedBlocks", blocks);
    }
    if uncommitted {
        add(&mut xml, "UncommittedBlocks", staged.iter().map(|(id, block)| (id, block.length)));
    }
    let mut response = response::document(xml.end("BlockList"));
    if let Some(info) = &info {
        let headers = response.headers_mut();
        headers.extend(info.tag.as_ref().map(|tag| (ETAG, tag.to_header())));
        headers.insert(LAST_MODIFIED, info.last_modified.to_header());
        headers.insert(CONTENT_LENGTH, info.length.into());
    }
    Ok(response)
}

fn add<'a>(xml: &mut Xml, name: &str, blocks: impl Iterator<Item = (&'a BlockId, u64)>) {
    xml.open(name);
    for (id, length) in blocks {
        xml.open("Block");
        xml.text("Name", &id.to_base64());
        xml.text("Size", &length.to_string());
        xml.close("Block");
    }
    xml.close(name);
}
