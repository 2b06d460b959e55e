//! The conformance suite on the register of Durable Objects, in the Worker's runtime.
//!
//! `cargo xtask ci --only worker` runs this test. `IFMATCH_URL` is the URL of the Worker in wasm/register.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{Method, Request};
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Scan, Swap, async_trait};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use support::{Answer, Client, full};

/// The register behind the Worker, with connections of its own.
struct Remote(Client);

impl Remote {
    fn connect() -> Self {
        let url =
            std::env::var("IFMATCH_URL").expect("IFMATCH_URL: run `cargo xtask ci --only worker`");
        Self(Client::new(
            url.trim_start_matches("http://").parse().unwrap(),
        ))
    }

    async fn call(
        &self,
        method: Method,
        query: String,
        content: Vec<u8>,
    ) -> Result<Answer, RegisterError> {
        // The runtime closes idle connections, which a reused one can't tell from a lost response.
        let request = Request::builder()
            .method(method)
            .uri(format!("/?{query}"))
            .header("connection", "close");
        let answer = self.0.try_send(request.body(full(content)).unwrap()).await;
        let answer =
            answer.map_err(|error| RegisterError::new(RegisterErrorKind::Ambiguous, error))?;
        match answer.status.as_u16() {
            200 | 204 | 404 | 412 => Ok(answer),
            503 => Err(RegisterError::new(
                RegisterErrorKind::Unavailable,
                answer.text(),
            )),
            504 => Err(RegisterError::new(
                RegisterErrorKind::Ambiguous,
                answer.text(),
            )),
            _ => panic!("{answer:?}"),
        }
    }
}

fn text(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

fn record(content: &[u8]) -> Option<Record> {
    (!content.is_empty()).then(|| Record::decode(content).unwrap())
}

#[async_trait]
impl Register for Remote {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let answer = self
            .call(
                Method::GET,
                format!("key={}", text(key.as_str())),
                Vec::new(),
            )
            .await;
        Ok(record(&answer.map_err(RegisterError::of_read)?.body))
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let query = format!("key={}&expected={}", text(key.as_str()), expected.get());
        let answer = self
            .call(
                Method::PUT,
                query,
                next.map(Record::encode).unwrap_or_default(),
            )
            .await?;
        Ok(if answer.status == 204 {
            Swap::Done
        } else {
            Swap::Conflict(record(&answer.body))
        })
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let after = scan
            .after
            .map(|after| format!("&after={}", text(after)))
            .unwrap_or_default();
        let query = format!("prefix={}&limit={}{after}", text(scan.prefix), scan.limit);
        let answer = self
            .call(Method::GET, query, Vec::new())
            .await
            .map_err(RegisterError::of_read)?;
        let entry = |line: &str| {
            let (key, record) = line.split_once(' ').unwrap();
            let [key, record] = [key, record].map(|part| BASE64_STANDARD.decode(part).unwrap());
            (
                Key::new(String::from_utf8(key).unwrap()).unwrap(),
                Record::decode(&record).unwrap(),
            )
        };
        Ok(answer.text().lines().map(entry).collect())
    }
}

/// Ends with races, among them clients whose history must be linearizable.
#[tokio::test(flavor = "multi_thread")]
async fn the_register_conforms_through_two_handles() {
    conformance::run_shared(async || Remote::connect(), RaceSize::new(8, 10)).await;
}
