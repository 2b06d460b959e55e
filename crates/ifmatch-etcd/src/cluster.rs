//! The cluster: connects to a member, and checks that it still is the cluster that responded first.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ifmatch_register::lanes::Connect;
use ifmatch_register::{ConnectError, ConnectErrorKind, Scan};
use ifmatch_runtime::{Cause, SystemClock, task};
use prost::Message;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::LIMIT;
use crate::address::Address;
use crate::connector::{StreamWatch, connect_once};
use crate::error::{refused, unusable};
use crate::requests::page;
use crate::rpc::{
    AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, RANGE, RangeResponse, ResponseHeader,
    call,
};

/// Time limit for connecting to a member.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// A cluster, shared by the register's connections.
#[derive(Debug)]
pub(crate) struct EtcdCluster {
    address: Address,
    /// Number of the member to connect to next.
    next_member: AtomicUsize,
    /// The identity of the cluster that responded first.
    id: Mutex<Option<u64>>,
    /// The latest revision of the cluster's data in any response.
    latest: AtomicI64,
}

/// A connection to a member, which has shown the cluster's identity.
#[derive(Clone, Debug)]
pub(crate) struct MemberConnection {
    channel: Channel,
    stream: StreamWatch,
    token: Option<AsciiMetadataValue>,
}

impl EtcdCluster {
    pub(crate) fn new(address: Address) -> Self {
        Self {
            address,
            next_member: AtomicUsize::new(0),
            id: Mutex::new(None),
            latest: AtomicI64::new(0),
        }
    }

    /// Returns the prefix of all keys.
    pub(crate) fn prefix(&self) -> &str {
        &self.address.prefix
    }

    /// Makes the next connection start with another member.
    pub(crate) fn skip_member(&self) {
        self.next_member.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note of a response's revision.
    pub(crate) fn saw(&self, header: Option<&ResponseHeader>) {
        let revision = header.map_or(0, |header| header.revision);
        self.latest.fetch_max(revision, Ordering::SeqCst);
    }

    /// Connects to the member with this number.
    async fn connect_to(&self, member: usize) -> Result<MemberConnection, ConnectError> {
        let (connector, stream) = connect_once();
        let endpoint = &self.address.members[member];
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| {
            let cause = Cause::naming(&error, "etcd://", "SSL_CERT_FILE").text;
            unusable(ConnectErrorKind::Unreachable, cause)
        })?;
        let mut connection = MemberConnection {
            channel,
            stream,
            token: None,
        };
        if let Some((name, password)) = self.address.user.clone() {
            let request = AuthenticateRequest { name, password };
            let response = connection.call(AUTHENTICATE, request).await;
            let AuthenticateResponse { token } = response.map_err(refused)?;
            connection.token = token.parse().ok();
        }
        self.check_identity(&connection).await?;
        Ok(connection)
    }

    /// Checks that a member has a leader, and belongs to the cluster that responded first.
    async fn check_identity(&self, connection: &MemberConnection) -> Result<(), ConnectError> {
        let scan = Scan {
            limit: 1,
            ..Scan::default()
        };
        let latest = self.latest.load(Ordering::SeqCst);
        let response = connection.call(RANGE, page(self.prefix(), &scan)).await;
        let RangeResponse { header, .. } = response.map_err(refused)?;
        let ResponseHeader {
            cluster_id,
            revision,
        } = header.clone().unwrap_or_default();
        let mut id = self.id.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = id.unwrap_or(cluster_id);
        // A restored cluster with the former one's names, addresses and token has its identity. Reads are linearizable, so
        // revisions only grow.
        if cluster_id != expected || revision < latest {
            let found = format!(
                "found {cluster_id:x} at revision {revision}, instead of {expected:x} at revision {latest} or later"
            );
            return Err(unusable(ConnectErrorKind::Lost, found));
        }
        *id = Some(cluster_id);
        self.saw(header.as_ref());
        Ok(())
    }
}

impl Connect for EtcdCluster {
    type Connection = MemberConnection;
    type Error = ConnectError;

    /// Connects to a member that responds.
    async fn connect(&self) -> Result<MemberConnection, ConnectError> {
        let members = self.address.members.len();
        let first = self.next_member.load(Ordering::Relaxed);
        let mut failure = unusable(ConnectErrorKind::Url, "no members");
        for member in (first..first + members).map(|member| member % members) {
            let connecting = self.connect_to(member);
            let connected = task::timeout(&SystemClock, CONNECT_LIMIT, connecting).await;
            match connected {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) if error.kind() == ConnectErrorKind::Unreachable => failure = error,
                Ok(Err(error)) => return Err(error),
                Err(elapsed) => failure = unusable(ConnectErrorKind::Unreachable, elapsed),
            }
        }
        Err(failure)
    }

    fn has_ended(&self, connection: &MemberConnection) -> bool {
        connection.has_ended()
    }
}

impl MemberConnection {
    /// Calls a method, within the time limit.
    pub(crate) async fn call<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: Q,
    ) -> Result<A, Status> {
        let response = call(&self.channel, self.token.as_ref(), method, request);
        let response = task::timeout(&SystemClock, LIMIT, response).await;
        response
            .unwrap_or_else(|elapsed| Err(Status::new(Code::DeadlineExceeded, elapsed.to_string())))
    }

    /// Returns `true` after the end of the stream.
    pub(crate) fn has_ended(&self) -> bool {
        self.stream.has_ended()
    }
}
