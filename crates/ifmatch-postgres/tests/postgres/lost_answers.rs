//! Answers that are lost after the commit.

use http::header::{HeaderMap, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderValue, Method};
use ifmatch_core::command::{Command, Content, Outcome, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_postgres::PostgresRegister;
use ifmatch_register::{Driver, Key};
use ifmatch_runtime::nonce;

use crate::proxy::Proxy;
use crate::server::{connect, start};

/// Number of answers that are lost.
const CUTS: usize = 1_000;

/// The swap commits, its connection ends, and the writer finds its own record: no refusal may deny the write, and no
/// repetition may double it.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_with_a_lost_answer_is_neither_doubled_nor_denied() {
    let server = start().await;
    let proxy = Proxy::start(server.address()).await;
    let register = PostgresRegister::connect(&server.url_at(proxy.address)).await.unwrap();
    let driver = Driver::new(register).assume_absent();
    let key = Key::new("counter").unwrap();
    let (mut written, mut unclear) = (0_u64, 0_u64);
    let mut tag = None;
    while proxy.cuts() < CUTS {
        let mut headers = HeaderMap::new();
        match &tag {
            Some(tag) => headers.insert(IF_MATCH, HeaderValue::clone(tag)),
            None => headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*")),
        };
        let conditions = Preconditions::from_headers(&headers);
        let number = (written + unclear + 1).to_le_bytes().to_vec();
        let content = Content::Hashed { hash: ContentHash::of(&number), payload: number.into() };
        let write = Write::new(&Method::PUT, &conditions, content, nonce().unwrap());
        match driver.apply(&key, &Command::Write(write)).await {
            Ok(applied) => {
                assert!(matches!(applied.outcome, Outcome::Written(_)), "a false refusal: {:?}", applied.outcome);
                written += 1;
                tag = Some(current_tag(&applied.after));
            }
            // The load after the lost answer failed as well.
            Err(error) if error.is_ambiguous() => {
                let record = driver.load(&key).await.unwrap();
                let found = Some(current_tag(&record));
                unclear += u64::from(found != tag);
                tag = found;
            }
            Err(error) => panic!("the server is there: {error}"),
        }
    }
    let record = connect(&server).await;
    let record = ifmatch_register::Register::load(&record, &key).await.unwrap().expect("it was written");
    let version = record.settled(record.revision().timestamp()).expect("no write is in flight").payload().to_vec();
    assert_eq!(u64::from_le_bytes(version.try_into().unwrap()), written + unclear, "each write took effect once");
    assert!(written > unclear, "the writes with lost answers were recognised");
}

fn current_tag(record: &ifmatch_core::record::Record) -> HeaderValue {
    let version = record.settled(record.revision().timestamp()).expect("no write is in flight");
    version.tags().first().expect("it has a tag").to_header()
}
