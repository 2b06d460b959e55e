//! Documents in the first folder that the host grants: what a service with storage of its own costs, for `cargo xtask bench component`.

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use wasip3::filesystem::preopens::get_directories;
use wasip3::filesystem::types::{Descriptor, DescriptorFlags, ErrorCode, OpenFlags, PathFlags};
use wasip3::http_compat::IncomingRequestBody;
use wasip3::wit_stream;

/// Answers a GET or PUT of the file with this name. A reader may see a part of a write.
pub(crate) async fn answer(
    method: &Method,
    name: &str,
    body: IncomingRequestBody,
) -> Response<Full<Bytes>> {
    let (status, content) = match *method {
        Method::PUT => match body.collect().await {
            Ok(body) => match write(name, body.to_bytes()).await {
                Ok(()) => (StatusCode::NO_CONTENT, Vec::new()),
                Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
            },
            Err(_) => (StatusCode::BAD_REQUEST, Vec::new()),
        },
        _ => match read(name).await {
            Ok(content) => (StatusCode::OK, content),
            Err(ErrorCode::NoEntry) => (StatusCode::NOT_FOUND, Vec::new()),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
        },
    };
    let mut response = Response::new(Full::from(content));
    *response.status_mut() = status;
    response
}

async fn open(name: &str, how: OpenFlags, flags: DescriptorFlags) -> Result<Descriptor, ErrorCode> {
    let (folder, _) = get_directories()
        .into_iter()
        .next()
        .ok_or(ErrorCode::NoEntry)?;
    folder
        .open_at(PathFlags::empty(), name.to_owned(), how, flags)
        .await
}

async fn read(name: &str) -> Result<Vec<u8>, ErrorCode> {
    let (stream, end) = open(name, OpenFlags::empty(), DescriptorFlags::READ)
        .await?
        .read_via_stream(0);
    let content = stream.collect().await;
    end.await.map(|()| content)
}

async fn write(name: &str, content: Bytes) -> Result<(), ErrorCode> {
    let file = open(
        name,
        OpenFlags::CREATE | OpenFlags::TRUNCATE,
        DescriptorFlags::WRITE,
    )
    .await?;
    let (mut writer, stream) = wit_stream::new();
    let written = file.write_via_stream(stream, 0);
    drop(writer.write_all(content.into()).await);
    drop(writer);
    written.await
}
