//! A connection that opens again when needed, to the next member, and the register's calls on it.

use std::sync::Arc;

use futures_util::future::join_all;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{Batches, Connect, Pages, QueuedSwap, Reconnecting};
use ifmatch_register::{ConnectError, Key, RegisterError, RegisterErrorKind, Scan, Swap};
use tonic::Status;

use crate::address::Address;
use crate::cluster::{EtcdCluster, MemberConnection};
use crate::error::{failed, is_full, unexpected};
use crate::requests::{self, OPERATIONS};
use crate::rpc::{RANGE, RangeResponse, TXN, TxnRequest, TxnResponse};

/// A connection that opens again when needed, to the next member.
#[derive(Debug)]
pub(crate) struct EtcdConnection {
    member: Reconnecting<EtcdCluster>,
}

impl EtcdConnection {
    /// Connects to a member of a cluster.
    pub(crate) async fn open(address: Address) -> Result<Self, ConnectError> {
        let mut member = Reconnecting::new(Arc::new(EtcdCluster::new(address)));
        let first = member.server().connect().await?;
        member.keep(first);
        Ok(Self { member })
    }

    /// Returns another connection to the same cluster, which opens at its first use.
    pub(crate) fn another(&self) -> Self {
        Self {
            member: Reconnecting::new(Arc::clone(self.member.server())),
        }
    }

    fn cluster(&self) -> &EtcdCluster {
        self.member.server()
    }

    /// Keeps the connection after a success, and otherwise turns to the next member.
    fn finish(&mut self, member: MemberConnection, has_succeeded: bool) {
        if has_succeeded {
            self.member.keep(member);
        } else {
            self.cluster().skip_member();
        }
    }

    /// Carries out the swaps of one transaction.
    async fn swap_some(
        &self,
        member: &MemberConnection,
        swaps: &[QueuedSwap],
    ) -> Result<Vec<Result<Swap, RegisterError>>, Status> {
        let request = requests::swap_all(self.cluster().prefix(), swaps);
        match self.transact(member, request).await {
            Ok(response) => Ok(response
                .responses
                .into_iter()
                .map(requests::swap_result)
                .collect()),
            Err(status) if is_full(&status) => self.after_full(member, swaps, &status).await,
            Err(status) => Err(status),
        }
    }

    /// Finds out which swaps took place although the database is full. The response has arrived, so no other swap will
    /// take place.
    async fn after_full(
        &self,
        member: &MemberConnection,
        swaps: &[QueuedSwap],
        status: &Status,
    ) -> Result<Vec<Result<Swap, RegisterError>>, Status> {
        let keys: Vec<&Key> = swaps.iter().map(|swap| &swap.key).collect();
        let found = self.load_some(member, &keys).await?;
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

    /// Loads the records of one transaction.
    async fn load_some(
        &self,
        member: &MemberConnection,
        keys: &[&Key],
    ) -> Result<Vec<Result<Option<Record>, RegisterError>>, Status> {
        let request = requests::load_all(self.cluster().prefix(), keys);
        let response = self.transact(member, request).await?;
        Ok(response
            .responses
            .into_iter()
            .map(requests::record)
            .collect())
    }

    /// Carries out a transaction.
    async fn transact(
        &self,
        member: &MemberConnection,
        request: TxnRequest,
    ) -> Result<TxnResponse, Status> {
        let response: TxnResponse = member.call(TXN, request).await?;
        self.cluster().saw(response.header.as_ref());
        Ok(response)
    }
}

impl Pages for EtcdConnection {
    async fn page(&mut self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let request = requests::page(self.cluster().prefix(), scan);
        let member = self.member.take().await?;
        let response: Result<RangeResponse, Status> = member.call(RANGE, request).await;
        self.finish(member, response.is_ok());
        let response = response.map_err(failed)?;
        self.cluster().saw(response.header.as_ref());
        let prefix = self.cluster().prefix();
        response
            .kvs
            .iter()
            .map(|pair| requests::entry(prefix, pair))
            .collect()
    }
}

impl Batches for EtcdConnection {
    async fn swap(&mut self, batch: &[QueuedSwap]) -> Vec<Result<Swap, RegisterError>> {
        let member = match self.member.take().await {
            Ok(member) => member,
            Err(error) => return batch.iter().map(|_| Err(error.duplicate())).collect(),
        };
        let parts = requests::transactions(batch);
        let calls = parts.iter().map(|part| self.swap_some(&member, part));
        let responses = join_all(calls).await;
        let mut results = Vec::with_capacity(batch.len());
        for (part, response) in parts.into_iter().zip(responses) {
            match response {
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
        self.finish(member, results.iter().all(Result::is_ok));
        results
    }

    async fn load(&mut self, keys: &[Key]) -> Result<Vec<Option<Record>>, RegisterError> {
        let member = self.member.take().await?;
        let keys: Vec<&Key> = keys.iter().collect();
        let parts = keys.chunks(OPERATIONS);
        let responses = join_all(parts.map(|part| self.load_some(&member, part))).await;
        let responses: Result<Vec<_>, Status> = responses.into_iter().collect();
        self.finish(member, responses.is_ok());
        let records = responses.map_err(failed)?;
        records.into_iter().flatten().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Duration;

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
        let first = connection.member.take().await.unwrap();
        connection.member.keep(first.clone());
        proxy.redirect(server.address());
        while !first.has_ended() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // tonic would connect again, without a look at the cluster's identity.
        let status = first
            .call::<_, RangeResponse>(RANGE, crate::rpc::RangeRequest::default())
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
