//! The engines, and their servers.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ifmatch_etcd::{ConnectErrorKind, EtcdRegister};
use ifmatch_http_register::HttpRegister;
use ifmatch_postgres::PostgresRegister;
use ifmatch_redis::RedisRegister;
use ifmatch_register::Register;
use ifmatch_testbed::{Program, Server, etcd, postgres, redis};
use rustix::process::Signal;
use support::Gateway;

use crate::Result;

/// Pause between attempts to connect to a cluster without a leader.
const PAUSE: Duration = Duration::from_millis(50);

/// An engine of a shared register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// `PostgreSQL`.
    Postgres,
    /// Redis.
    Redis,
    /// etcd, a cluster of three.
    Etcd,
    /// An ifmatch gateway, by HTTP.
    Http,
}

/// Returns the URL of the register on these servers, at these addresses.
pub fn url(servers: &[Server], addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let url = servers.first().map(Server::url).unwrap_or_default();
    let first = servers
        .first()
        .map(|server| server.address().to_string())
        .unwrap_or_default();
    url.replace(&first, &addresses.join(","))
}

impl Engine {
    /// Returns the name for `--engine`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Etcd => "etcd",
            Self::Http => "http",
        }
    }

    /// Starts its server, or a cluster of three, with an empty register.
    ///
    /// # Errors
    /// If `PostgreSQL` has no tables afterwards.
    pub async fn start(self) -> Result<Vec<Server>> {
        Ok(match self {
            Self::Postgres => {
                let server = postgres::start(&["max_connections=200"]).await;
                ifmatch_postgres::migrate(&server.url()).await?;
                vec![server]
            }
            Self::Redis => vec![redis::durable().await],
            Self::Etcd => etcd::start_three().await,
            Self::Http => vec![Server::start(gateway()).await],
        })
    }

    /// Connects to a register. A cluster without a leader is asked again, for ever.
    ///
    /// # Errors
    /// If the URL is wrong, or the server can't be reached or used.
    pub async fn connect(self, url: &str) -> Result<Arc<dyn Register>> {
        Ok(match self {
            Self::Postgres => Arc::new(PostgresRegister::connect(url).await?),
            Self::Redis => Arc::new(RedisRegister::connect(url).await?),
            Self::Etcd => loop {
                match EtcdRegister::connect(url).await {
                    Ok(register) => break Arc::new(register),
                    // The cluster is still without a leader.
                    Err(error) if error.kind() == ConnectErrorKind::Unreachable => {}
                    Err(error) => return Err(error.into()),
                }
                tokio::time::sleep(PAUSE).await;
            },
            Self::Http => {
                let client = Client::builder(TokioExecutor::new()).build_http();
                Arc::new(HttpRegister::open(client, url.parse()?).await?)
            }
        })
    }
}

fn gateway() -> Program {
    Program {
        name: "ifmatch".to_owned(),
        package: "ifmatch",
        url: ("http://", "/records/soak"),
        command: Box::new(|port, folder| {
            let mut command = Gateway::command();
            command
                .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--data"])
                .arg(folder);
            command
        }),
        is_ready: |address| TcpStream::connect(address).is_ok(),
        end: Signal::KILL,
    }
}
