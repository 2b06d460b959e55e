//! Reads or conditional writes of 1 KiB, with as many connections as objects, in the plain dialect or in S3's.
//!
//! ```text
//! s3 get|put plain|s3 127.0.0.1:10004 ACCESS_KEY SECRET_KEY
//! ```
//!
//! Prints what wrk prints: the number of requests, and their rate.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at an unexpected result"
)]
#![expect(clippy::print_stdout, reason = "prints its result")]

#[path = "../leases/connection.rs"]
mod connection;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use connection::Connection;
use http::{Method, Request};
use support::s3::{S3, now};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Number of connections, each with its own object.
const CLIENTS: usize = 32;
const TIME: Duration = Duration::from_secs(1);
const CONTENT: &[u8] = &[b'x'; 1024];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [scene, dialect, address, access_key, secret_key] = args.as_slice() else {
        panic!("see the first lines of benches/s3/main.rs")
    };
    let address: SocketAddr = address.parse().unwrap();
    let s3 = (dialect == "s3").then(|| S3::new(address, access_key, secret_key));
    let mut ready = JoinSet::new();
    for client in 0..CLIENTS {
        let client = Client {
            s3: s3.clone(),
            path: format!("/bench/{client}"),
        };
        ready.spawn(async move {
            let mut connection = Connection::open(address).await;
            let tag = client.put(&mut connection, None).await;
            (client, connection, tag)
        });
    }
    let ready = ready.join_all().await;
    let begin = Instant::now();
    let mut running = JoinSet::new();
    for (client, connection, tag) in ready {
        let end = begin + TIME;
        match scene.as_str() {
            "get" => running.spawn(client.gets(connection, end)),
            "put" => running.spawn(client.puts(connection, tag, end)),
            other => panic!("unknown scene: {other}"),
        };
    }
    let done: u32 = running.join_all().await.into_iter().sum();
    let took = begin.elapsed().as_secs_f64();
    println!(
        "  {done} requests in {took:.2}s\nRequests/sec: {:.2}",
        f64::from(done) / took
    );
}

struct Client {
    /// `None` for the plain dialect.
    s3: Option<S3>,
    path: String,
}

impl Client {
    async fn gets(self, mut connection: Connection, end: Instant) -> u32 {
        let mut done = 0;
        while Instant::now() < end {
            let get = self.request(Method::GET, &[], &[]);
            connection.exchange(&get).await.expect(&[200]).unwrap();
            done += 1;
        }
        done
    }

    async fn puts(self, mut connection: Connection, mut tag: String, end: Instant) -> u32 {
        let mut done = 0;
        while Instant::now() < end {
            tag = self.put(&mut connection, Some(&tag)).await;
            done += 1;
        }
        done
    }

    /// Writes the object, if it has this tag, and returns its new tag.
    async fn put(&self, connection: &mut Connection, tag: Option<&str>) -> String {
        let condition = tag.map(|tag| ("if-match", tag));
        let put = self.request(Method::PUT, condition.as_slice(), CONTENT);
        connection
            .exchange(&put)
            .await
            .expect(&[200, 201, 204])
            .unwrap()
    }

    fn request(
        &self,
        method: Method,
        headers: &[(&str, &str)],
        content: &'static [u8],
    ) -> Request<Bytes> {
        if let Some(s3) = &self.s3 {
            return s3
                .signer()
                .signed(method, &self.path, headers, content, now());
        }
        let request = Request::builder().method(method).uri(&self.path);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.body(Bytes::from_static(content)).unwrap()
    }
}
