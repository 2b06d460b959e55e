//! A connection that opens again when needed, to the next member, and the requests on it.

use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{Batches, Connect, Pages, QueuedSwap, Reconnecting, decode, encode};
use ifmatch_register::{
    ConnectError, ConnectErrorKind, Key, RegisterError, RegisterErrorKind, Scan, Swap,
};
use ifmatch_runtime::{Cause, SystemClock, task};
use prost::Message;
use tokio::net::TcpStream;
use tokio_util::io::InspectReader;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::Service;
use tower::util::service_fn;

use crate::LIMIT;
use crate::address::{Address, PORT};
use crate::error::{failed, is_full, refused, unexpected, unusable};
use crate::rpc::{
    AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, Compare, CompareOperand,
    CompareResult, CompareTarget, DeleteRequest, PutRequest, RANGE, RangeRequest, RangeResponse,
    RequestKind, RequestOp, ResponseHeader, ResponseKind, TXN, TxnRequest, TxnResponse, call,
};

/// Maximum number of operations in a transaction. Servers accept 128 by default, and count a nested one's, too.
const OPERATIONS: usize = 64;
/// Maximum length of the values in a transaction. Servers accept 1.5 MiB by default, and a larger value only alone.
const BYTES: usize = 1 << 20;
/// Time limit for connecting to a member.
const OPENING: Duration = Duration::from_secs(3);

/// A connection that opens again when needed, to the next member.
#[derive(Debug)]
pub(crate) struct EtcdConnection {
    open: Reconnecting<EtcdCluster>,
}

/// The register's place, shared by its connections.
#[derive(Debug)]
struct EtcdCluster {
    address: Address,
    /// Number of the member to connect to next.
    member: AtomicUsize,
    /// The cluster that answered first.
    cluster: Mutex<Option<u64>>,
    /// The latest revision of the cluster's data in any response.
    latest: AtomicI64,
}

#[derive(Clone, Debug)]
struct Open {
    channel: Channel,
    stream: Watch,
    token: Option<AsciiMetadataValue>,
}

impl EtcdConnection {
    pub(crate) async fn open(address: Address) -> Result<Self, ConnectError> {
        let place = EtcdCluster {
            address,
            member: AtomicUsize::new(0),
            cluster: Mutex::new(None),
            latest: AtomicI64::new(0),
        };
        let mut open = Reconnecting::new(Arc::new(place));
        let first = open.server().connect().await?;
        open.keep(first);
        Ok(Self { open })
    }

    /// Returns another connection to the same place, which opens at its first use.
    pub(crate) fn another(&self) -> Self {
        Self {
            open: Reconnecting::new(Arc::clone(self.open.server())),
        }
    }

    fn place(&self) -> &EtcdCluster {
        self.open.server()
    }

    /// Keeps the connection after a success, and otherwise turns to the next member.
    fn keep<T>(&mut self, open: Open, answer: Result<T, Status>) -> Result<T, Status> {
        match answer {
            Ok(_) => self.open.keep(open),
            Err(_) => drop(self.place().member.fetch_add(1, Ordering::Relaxed)),
        }
        answer
    }

    /// Carries out the swaps of one transaction.
    async fn swap_some(
        &self,
        open: &Open,
        swaps: &[QueuedSwap],
    ) -> Result<Vec<Result<Swap, RegisterError>>, Status> {
        let success = swaps
            .iter()
            .map(|swap| operation(RequestKind::Txn(self.place().swap(swap))))
            .collect();
        // Never carried out, since nothing is compared. Servers count no changes of nested transactions: without this one,
        // the database would grow beyond its quota.
        let quota = swaps.iter().take(1).map(|swap| {
            operation(RequestKind::Put(PutRequest {
                key: self.place().key(&swap.key),
                value: Vec::new(),
            }))
        });
        let request = TxnRequest {
            compare: Vec::new(),
            success,
            failure: quota.collect(),
        };
        let answer: Result<TxnResponse, Status> = open.call(TXN, request).await;
        let responses = match answer {
            Ok(answer) => {
                self.place().saw(answer.header.as_ref());
                answer.responses
            }
            Err(status) if is_full(&status) => return self.after_full(open, swaps, &status).await,
            Err(status) => return Err(status),
        };
        let swaps = responses.into_iter().map(|response| match response.answer {
            Some(ResponseKind::Txn(TxnResponse {
                succeeded: true, ..
            })) => Ok(Swap::Done),
            Some(ResponseKind::Txn(TxnResponse { responses, .. })) => {
                match responses.into_iter().next() {
                    Some(response) => Ok(Swap::Conflict(found(response.answer)?)),
                    None => Err(unexpected()),
                }
            }
            _ => Err(unexpected()),
        });
        Ok(swaps.collect())
    }

    /// Finds out which swaps took place although the database is full. The response has arrived, so no other swap will
    /// take place.
    async fn after_full(
        &self,
        open: &Open,
        swaps: &[QueuedSwap],
        status: &Status,
    ) -> Result<Vec<Result<Swap, RegisterError>>, Status> {
        let keys: Vec<&Key> = swaps.iter().map(|swap| &swap.key).collect();
        let found = self.load_some(open, &keys).await?;
        let results = swaps.iter().zip(found).map(|(swap, found)| {
            let found = found?;
            let revision = found.as_ref().map_or(Revision::NONE, Record::revision);
            let kind = if found.is_some() && found == swap.next {
                return Ok(Swap::Done);
            } else if revision == swap.expected {
                RegisterErrorKind::Full
            } else {
                RegisterErrorKind::Ambiguous
            };
            Err(RegisterError::new(kind, status.message()))
        });
        Ok(results.collect())
    }

    async fn load_some(
        &self,
        open: &Open,
        keys: &[&Key],
    ) -> Result<Vec<Result<Option<Record>, RegisterError>>, Status> {
        let success = keys
            .iter()
            .map(|key| operation(RequestKind::Range(self.place().single(key))))
            .collect();
        let answer: TxnResponse = open
            .call(
                TXN,
                TxnRequest {
                    success,
                    ..TxnRequest::default()
                },
            )
            .await?;
        self.place().saw(answer.header.as_ref());
        Ok(answer
            .responses
            .into_iter()
            .map(|response| found(response.answer))
            .collect())
    }
}

impl Pages for EtcdConnection {
    async fn page(&mut self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let range = self.place().range(scan);
        let open = self.open.take().await?;
        let answer: Result<RangeResponse, Status> = open.call(RANGE, range).await;
        let answer = self.keep(open, answer).map_err(failed)?;
        self.place().saw(answer.header.as_ref());
        let prefix = self.place().address.prefix.as_bytes();
        let entries = answer.kvs.into_iter().map(|pair| {
            let key = pair
                .key
                .strip_prefix(prefix)
                .and_then(|key| str::from_utf8(key).ok());
            let key = key
                .and_then(|key| Key::new(key).ok())
                .ok_or_else(unexpected)?;
            Ok((key, decode(&pair.value)?))
        });
        entries.collect()
    }
}

impl Batches for EtcdConnection {
    async fn swap(&mut self, batch: &[QueuedSwap]) -> Vec<Result<Swap, RegisterError>> {
        let open = match self.open.take().await {
            Ok(open) => open,
            Err(error) => {
                return batch.iter().map(|_| Err(error.duplicate())).collect();
            }
        };
        let parts = parts(batch);
        let answers = join_all(parts.iter().map(|part| self.swap_some(&open, part))).await;
        let mut results = Vec::with_capacity(batch.len());
        for (part, answer) in parts.into_iter().zip(answers) {
            match answer {
                Ok(swaps) => {
                    let missing = part.len().saturating_sub(swaps.len());
                    results.extend(swaps.into_iter().take(part.len()));
                    results.extend((0..missing).map(|_| Err(unexpected())));
                }
                Err(status) => {
                    let error = failed(status);
                    results.extend(part.iter().map(|_| Err(error.duplicate())));
                }
            }
        }
        let has_failed = results.iter().any(Result::is_err);
        let kept = if has_failed {
            Err(Status::new(Code::Unavailable, ""))
        } else {
            Ok(())
        };
        // The errors are in the results.
        let _ = self.keep(open, kept);
        results
    }

    async fn load(&mut self, keys: &[Key]) -> Result<Vec<Option<Record>>, RegisterError> {
        let open = self.open.take().await?;
        let keys: Vec<&Key> = keys.iter().collect();
        let answers = join_all(
            keys.chunks(OPERATIONS)
                .map(|keys| self.load_some(&open, keys)),
        )
        .await;
        let answers: Result<Vec<_>, Status> = answers.into_iter().collect();
        self.keep(open, answers)
            .map_err(failed)?
            .into_iter()
            .flatten()
            .collect()
    }
}

impl Connect for EtcdCluster {
    type Connection = Open;
    type Error = ConnectError;

    /// Connects to a member that responds.
    async fn connect(&self) -> Result<Open, ConnectError> {
        let members = &self.address.members;
        let first = self.member.load(Ordering::Relaxed);
        let mut failure = unusable(ConnectErrorKind::Url, "no members");
        for attempt in 0..members.len() {
            let opened = self.open_member((first + attempt) % members.len());
            let opened = task::timeout(&SystemClock, OPENING, opened).await;
            match opened
                .unwrap_or_else(|elapsed| Err(unusable(ConnectErrorKind::Unreachable, elapsed)))
            {
                Ok(open) => return Ok(open),
                Err(error) if error.kind() == ConnectErrorKind::Unreachable => failure = error,
                Err(error) => return Err(error),
            }
        }
        Err(failure)
    }

    fn has_ended(&self, open: &Open) -> bool {
        open.stream.has_ended()
    }
}

impl EtcdCluster {
    async fn open_member(&self, member: usize) -> Result<Open, ConnectError> {
        let unreachable = |error| {
            unusable(
                ConnectErrorKind::Unreachable,
                Cause::naming(&error, "etcd://", "SSL_CERT_FILE").text,
            )
        };
        let (connector, stream) = once();
        let channel = self.address.members[member]
            .connect_with_connector(connector)
            .await
            .map_err(unreachable)?;
        let mut open = Open {
            channel,
            stream,
            token: None,
        };
        if let Some((name, password)) = &self.address.user {
            let request = AuthenticateRequest {
                name: name.clone(),
                password: password.clone(),
            };
            let answer: AuthenticateResponse =
                open.call(AUTHENTICATE, request).await.map_err(refused)?;
            open.token = answer.token.parse().ok();
        }
        // Also shows that the member has a leader.
        let range = self.range(&Scan {
            limit: 1,
            ..Scan::default()
        });
        let latest = self.latest.load(Ordering::SeqCst);
        let answer: RangeResponse = open.call(RANGE, range).await.map_err(refused)?;
        let ResponseHeader {
            cluster_id,
            revision,
        } = answer.header.clone().unwrap_or_default();
        let mut known = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = known.unwrap_or(cluster_id);
        // A restored cluster with the former one's names, addresses and token has its identity. Reads are linearizable, so
        // revisions only grow.
        if cluster_id != expected || revision < latest {
            let found = format!(
                "found {cluster_id:x} at revision {revision}, instead of {expected:x} at revision {latest} or later"
            );
            return Err(unusable(ConnectErrorKind::Lost, found));
        }
        *known = Some(cluster_id);
        self.saw(answer.header.as_ref());
        Ok(open)
    }

    /// Takes note of a response's revision.
    fn saw(&self, header: Option<&ResponseHeader>) {
        self.latest
            .fetch_max(header.map_or(0, |header| header.revision), Ordering::SeqCst);
    }

    fn key(&self, key: &Key) -> Vec<u8> {
        [self.address.prefix.as_bytes(), key.as_str().as_bytes()].concat()
    }

    fn single(&self, key: &Key) -> RangeRequest {
        RangeRequest {
            key: self.key(key),
            ..RangeRequest::default()
        }
    }

    fn range(&self, scan: &Scan<'_>) -> RangeRequest {
        let prefix = format!("{}{}", self.address.prefix, scan.prefix).into_bytes();
        let after = scan.after.filter(|after| *after >= scan.prefix);
        // The first key after `after` is the same with a byte 0.
        let after =
            after.map(|after| [self.address.prefix.as_bytes(), after.as_bytes(), b"\0"].concat());
        // The key after all that begin with the prefix, which isn't empty. UTF-8 has no byte 255.
        let mut range_end = prefix.clone();
        range_end
            .iter_mut()
            .last()
            .into_iter()
            .for_each(|last| *last += 1);
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
        RangeRequest {
            key: after.unwrap_or(prefix),
            range_end,
            limit,
        }
    }

    /// Returns the transaction of one swap. A value between an expected revision and the next one begins with the
    /// expected one.
    fn swap(&self, swap: &QueuedSwap) -> TxnRequest {
        let key = self.key(&swap.key);
        let compare = |result, target, operand| Compare {
            result: i32::from(result),
            target: i32::from(target),
            key: key.clone(),
            operand: Some(operand),
        };
        let value = |revision: u64| CompareOperand::Value(revision.to_be_bytes().to_vec());
        let expected = swap.expected.get();
        let compare = if swap.expected == Revision::NONE {
            vec![compare(
                CompareResult::Equal,
                CompareTarget::Version,
                CompareOperand::Version(0),
            )]
        } else {
            let lower = compare(
                CompareResult::Greater,
                CompareTarget::Value,
                value(expected),
            );
            // No revision follows the last one.
            let upper = expected
                .checked_add(1)
                .map(|next| compare(CompareResult::Less, CompareTarget::Value, value(next)));
            [lower].into_iter().chain(upper).collect()
        };
        let success = match &swap.next {
            Some(next) => RequestKind::Put(PutRequest {
                key: key.clone(),
                value: encode(next),
            }),
            None => RequestKind::Delete(DeleteRequest { key: key.clone() }),
        };
        let failure = vec![operation(RequestKind::Range(self.single(&swap.key)))];
        TxnRequest {
            compare,
            success: vec![operation(success)],
            failure,
        }
    }
}

impl Open {
    /// Calls a method, within the time limit.
    async fn call<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: Q,
    ) -> Result<A, Status> {
        let answer = call(&self.channel, self.token.as_ref(), method, request);
        let answer = task::timeout(&SystemClock, LIMIT, answer).await;
        answer
            .unwrap_or_else(|elapsed| Err(Status::new(Code::DeadlineExceeded, elapsed.to_string())))
    }
}

/// Divides a batch into transactions.
fn parts(batch: &[QueuedSwap]) -> Vec<&[QueuedSwap]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, swap) in batch.iter().enumerate() {
        let length =
            swap.key.as_str().len() + swap.next.as_ref().map_or(0, |next| next.encode().len());
        if at > start && (at - start >= OPERATIONS || bytes + length > BYTES) {
            parts.push(&batch[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += length;
    }
    parts.push(&batch[start..]);
    parts
}

fn operation(op: RequestKind) -> RequestOp {
    RequestOp { op: Some(op) }
}

fn found(answer: Option<ResponseKind>) -> Result<Option<Record>, RegisterError> {
    let Some(ResponseKind::Range(range)) = answer else {
        return Err(unexpected());
    };
    range
        .kvs
        .first()
        .map(|pair| decode(&pair.value))
        .transpose()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use ifmatch_testbed::{Proxy, etcd};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_that_ended_while_idle_is_replaced_before_the_next_call() {
        let server = etcd::start(&[]).await;
        let proxy = Proxy::start(server.address()).await;
        let address: Address = format!("etcd://{}", proxy.address()).parse().unwrap();
        // The server may still be without a leader.
        let mut connection = loop {
            if let Ok(connection) = EtcdConnection::open(address.clone()).await {
                break connection;
            }
        };
        let first = connection.open.take().await.unwrap();
        connection.open.keep(first.clone());
        proxy.redirect(server.address());
        while !first.stream.has_ended() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // tonic would connect again, without a look at the cluster's identity.
        let status = first
            .call::<_, RangeResponse>(RANGE, RangeRequest::default())
            .await
            .unwrap_err();
        assert!(
            status.to_string().contains("the connection has ended"),
            "{status}"
        );
        connection
            .page(&Scan {
                limit: 1,
                ..Scan::default()
            })
            .await
            .unwrap();
    }
}

/// Knows when a stream has ended.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Weak<()>);

impl Watch {
    /// Returns `true` after the end of the stream. Nothing more is sent on it.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Returns a connector that connects once, without delay of small packets, and a watch of its stream.
///
/// When a stream ends, tonic reconnects on its own. Another cluster could respond there unnoticed, so each stream
/// belongs to one [`Open`](crate::connection::Open) connection, which has seen the cluster's identity.
pub(crate) fn once() -> (
    impl Service<
        Uri,
        Response = impl Read + Write + Send + Unpin,
        Error = Error,
        Future = impl Future + Send,
    > + Send,
    Watch,
) {
    let alive = Arc::new(());
    let watch = Watch(Arc::downgrade(&alive));
    let mut alive = Some(alive);
    let connect = move |uri: Uri| {
        let alive = alive.take();
        async move {
            let alive = alive
                .ok_or_else(|| Error::new(ErrorKind::NotConnected, "the connection has ended"))?;
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(PORT))).await?;
            stream.set_nodelay(true)?;
            Ok::<_, Error>(TokioIo::new(InspectReader::new(stream, move |_| {
                _ = &alive;
            })))
        }
    };
    (service_fn(connect), watch)
}
