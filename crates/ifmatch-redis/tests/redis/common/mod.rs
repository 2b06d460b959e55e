//! Connections to Redis servers.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use ifmatch_redis::RedisRegister;
use ifmatch_testbed::Server;
use redis::cmd;

pub(crate) async fn connect(url: &str) -> RedisRegister {
    RedisRegister::connect(url).await.expect("the server is there")
}

/// Sends a command to a server.
pub(crate) async fn send(server: &Server, command: &[&str]) -> String {
    let client = redis::Client::open(server.url()).expect("a URL");
    let patient = redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&patient).await;
    let mut connection = connection.expect("the server is there");
    let (name, arguments) = command.split_first().expect("a command");
    let answer: redis::Value = cmd(name).arg(arguments).query_async(&mut connection).await.expect("an answer");
    format!("{answer:?}")
}
