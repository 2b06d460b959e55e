//! Updates of etcd as `NewSTM` of its Go client makes them: read, then a transaction that compares the revision. If another
//! client was first, the transaction returns the new value, and the update starts again from there, at once.

use std::net::SocketAddr;

use http::uri::PathAndQuery;
use prost::{Message, Oneof};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// A key of etcd with a number, on a connection of its own.
pub(crate) struct Number {
    channel: Channel,
    key: Vec<u8>,
}

/// A version of the number.
#[derive(Clone, Copy)]
struct Read {
    revision: i64,
    value: u64,
}

impl Number {
    /// Connects.
    pub(crate) async fn open(address: SocketAddr, key: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .unwrap()
            .tcp_nodelay(true);
        Self {
            channel: endpoint.connect().await.unwrap(),
            key: key.into(),
        }
    }

    /// Returns the number, zero if it isn't there.
    pub(crate) async fn get(&self) -> u64 {
        self.read().await.value
    }

    /// Adds one, and returns the number of attempts.
    pub(crate) async fn increment(&self) -> u32 {
        let (mut read, mut attempts) = (self.read().await, 1);
        while let Some(newer) = self.swap(read).await {
            read = newer;
            attempts += 1;
        }
        attempts
    }

    async fn read(&self) -> Read {
        let answer: RangeResponse = self
            .call(
                "/etcdserverpb.KV/Range",
                RangeRequest {
                    key: self.key.clone(),
                },
            )
            .await;
        Read::of(answer)
    }

    /// Writes the next number, or returns the one that another client has written.
    async fn swap(&self, read: Read) -> Option<Read> {
        let key = || self.key.clone();
        let put = PutRequest {
            key: key(),
            value: (read.value + 1).to_string().into_bytes(),
        };
        let request = TxnRequest {
            compare: vec![Compare {
                target: MOD,
                key: key(),
                revision: Some(Revision::Mod(read.revision)),
            }],
            success: vec![RequestOp {
                op: Some(Op::Put(put)),
            }],
            failure: vec![RequestOp {
                op: Some(Op::Range(RangeRequest { key: key() })),
            }],
        };
        let answer: TxnResponse = self.call("/etcdserverpb.KV/Txn", request).await;
        if answer.succeeded {
            return None;
        }
        let found = answer.responses.into_iter().next();
        let Some(Answer::Range(found)) = found.and_then(|response| response.answer) else {
            panic!("a transaction that has failed returns no value")
        };
        Some(Read::of(found))
    }

    async fn call<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: Q,
    ) -> A {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc
            .unary(
                tonic::Request::new(request),
                PathAndQuery::from_static(method),
                codec,
            )
            .await;
        answer.unwrap().into_inner()
    }
}

impl Read {
    fn of(answer: RangeResponse) -> Self {
        let Some(found) = answer.kvs.into_iter().next() else {
            return Self {
                revision: 0,
                value: 0,
            };
        };
        let value = String::from_utf8(found.value).unwrap().parse().unwrap();
        Self {
            revision: found.mod_revision,
            value,
        }
    }
}

// The part of etcd's `rpc.proto` (version 3.4) that is needed.

#[derive(Clone, PartialEq, Message)]
struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(int64, tag = "3")]
    mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RequestOp {
    #[prost(oneof = "Op", tags = "1, 2")]
    op: Option<Op>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Op {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
}

#[derive(Clone, PartialEq, Message)]
struct ResponseOp {
    #[prost(oneof = "Answer", tags = "1")]
    answer: Option<Answer>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Answer {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
}

/// `CompareTarget` for the revision of the last change.
const MOD: i32 = 2;

/// Compares for equality, which is the default.
#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "Revision", tags = "6")]
    revision: Option<Revision>,
}

/// The revision that a key must have. Zero if there must be no value.
#[derive(Clone, PartialEq, Oneof)]
enum Revision {
    #[prost(int64, tag = "6")]
    Mod(i64),
}

#[derive(Clone, PartialEq, Message)]
struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnResponse {
    #[prost(bool, tag = "2")]
    succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    responses: Vec<ResponseOp>,
}
