//! The part of etcd's gRPC interface that a register needs (`rpc.proto` of version 3.4).
//!
//! Written out, since a generator would need `protoc` at build time. Fields that aren't used are left out: servers read a
//! missing field as its default, and responses are read without the fields unknown here.

use http::uri::PathAndQuery;
use prost::{Message, Oneof};
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// Maximum length of a response, in bytes: a page of the largest records.
const MAX_ANSWER: usize = 512 << 20;

pub(crate) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";

/// Calls a method.
pub(crate) async fn call<Q, A>(
    channel: &Channel,
    token: Option<&AsciiMetadataValue>,
    method: &'static str,
    request: Q,
) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(MAX_ANSWER);
    // The call hasn't begun.
    grpc.ready()
        .await
        .map_err(|error| Status::new(Code::Unavailable, error.to_string()))?;
    let mut request = Request::new(request);
    if let Some(token) = token {
        request
            .metadata_mut()
            .insert("authorization", token.clone());
    }
    let codec = ProstCodec::<Q, A>::default();
    Ok(grpc
        .unary(request, PathAndQuery::from_static(method), codec)
        .await?
        .into_inner())
}

/// Asks for a token.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

/// The token of a user, which later requests carry.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

/// The header of every response.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    /// The revision of the cluster's data, which grows with each change.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

/// A key with its value.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
}

/// Linearizable, since `serializable` is missing.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
}

/// The response to a [`RangeRequest`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
}

/// Sets a value.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// Removes a key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

/// The response to a change, without content.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ChangeResponse {}

/// An operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "RequestKind", tags = "1, 2, 3, 4")]
    pub(crate) op: Option<RequestKind>,
}

/// The kinds of operations.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum RequestKind {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRequest),
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

/// The response to an operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "ResponseKind", tags = "1, 2, 3, 4")]
    pub(crate) answer: Option<ResponseKind>,
}

/// The responses to the kinds of operations.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ResponseKind {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(ChangeResponse),
    #[prost(message, tag = "3")]
    Delete(ChangeResponse),
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

/// A comparison of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub(crate) result: i32,
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "CompareOperand", tags = "4, 7")]
    pub(crate) operand: Option<CompareOperand>,
}

/// The relation of what is stored to the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum CompareResult {
    Equal = 0,
    Greater = 1,
    Less = 2,
}

/// What of a key is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum CompareTarget {
    Version = 0,
    Value = 3,
}

/// The operand of a comparison.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum CompareOperand {
    /// Number of changes since the key was created, or zero if it isn't there.
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

/// A transaction: carries out `success` if all comparisons hold, and otherwise `failure`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

/// The response to a transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}
