//! Updates under contention and with lost responses.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use ifmatch_client::{
    Backend, Client, Error, ErrorKind, Found, Memory, Put, Read, UpdateError, Version, When,
};
use serde::{Deserialize, Serialize};

use crate::store::{Fault, Steady, Store};

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stock {
    left: u32,
}

/// Runs tasks that each add one several times, and returns the number of successes.
async fn add(tasks: usize, times: usize, client: impl Fn() -> Client) -> usize {
    let task = |client: Client| async move {
        for _ in 0..times {
            client
                .json::<u64>("hits")
                .update(|count| *count += 1)
                .await?;
        }
        Ok::<usize, Error>(times)
    };
    let tasks = (0..tasks).map(|_| tokio::spawn(task(client())));
    join_all(tasks)
        .await
        .into_iter()
        .map(|done| done.unwrap().unwrap())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_tasks_with_100_updates_each_none_is_lost() {
    let client = Client::new(Memory::default()).with_patience(Duration::from_hours(1));
    assert_eq!(add(64, 100, || client.clone()).await, 6_400);
    assert_eq!(
        client
            .json::<u64>("hits")
            .get()
            .await
            .unwrap()
            .unwrap()
            .value,
        6_400
    );
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_requests_neither_fail_nor_repeat_an_update() {
    let store = Store::default();
    store.fail(|number| match number % 3 {
        0 => Fault::Answer,
        1 => Fault::Request,
        _ => Fault::None,
    });
    assert_eq!(add(8, 125, || store.client()).await, 1_000);
    assert_eq!(
        store
            .client()
            .json::<u64>("hits")
            .get()
            .await
            .unwrap()
            .unwrap()
            .value,
        1_000
    );
}

#[tokio::test(start_paused = true)]
async fn equal_bytes_of_two_writers_are_two_updates_even_if_tags_are_hashes() {
    let store = Store::default();
    store.use_hashes();
    store.fail(|number| {
        if number % 2 == 0 {
            Fault::Answer
        } else {
            Fault::None
        }
    });
    assert_eq!(add(8, 50, || store.client()).await, 400);
    assert_eq!(
        store
            .client()
            .json::<u64>("hits")
            .get()
            .await
            .unwrap()
            .unwrap()
            .value,
        400
    );
}

#[tokio::test(start_paused = true)]
async fn two_creators_with_lost_answers_create_once() {
    let store = Store::default();
    store.fail(|_| Fault::Answer);
    let note = |text: &str| {
        let document = store
            .client()
            .with_patience(Duration::from_secs(5))
            .json::<String>("note");
        let text = text.to_owned();
        async move { document.create(text).await }
    };
    let (mine, theirs) = tokio::join!(note("mine"), note("theirs"));
    let (winner, loser) = if mine.is_ok() {
        (mine, theirs)
    } else {
        (theirs, mine)
    };
    let current = store
        .client()
        .json::<String>("note")
        .get()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(winner.unwrap().value, current.value);
    assert!(matches!(
        loser.unwrap_err().kind(),
        ErrorKind::Conflict { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn an_update_without_an_answer_is_unknown() {
    let store = Store::default();
    let connection = store.connect();
    connection.cut();
    let client = Client::new(connection).with_clock(Steady);
    let error = client
        .json::<u64>("hits")
        .update(|count| *count += 1)
        .await
        .unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unknown);
    assert_eq!(store.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_strong_tag_nothing_is_written() {
    let store = Store::default();
    store.client().json::<u64>("hits").create(1).await.unwrap();
    store.weaken_tags();
    let writes = store.writes();
    let hits = store.client().json::<u64>("hits");
    assert_eq!(
        *hits.update(|count| *count += 1).await.unwrap_err().kind(),
        ErrorKind::Refused
    );
    assert_eq!(*hits.get().await.unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(store.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn an_aborted_update_writes_nothing() {
    let store = Store::default();
    let stock = store.client().json::<Stock>("stock");
    stock.create(Stock { left: 1 }).await.unwrap();
    let sell = |stock: &mut Stock| {
        stock
            .left
            .checked_sub(1)
            .map(|left| stock.left = left)
            .ok_or("sold out")
    };
    assert_eq!(stock.try_update(sell).await.unwrap(), Stock { left: 0 });
    let writes = store.writes();
    assert_eq!(
        stock.try_update(sell).await.unwrap_err(),
        UpdateError::Aborted("sold out")
    );
    assert_eq!(store.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_version_cannot_be_replaced_again() {
    let store = Store::default();
    let stock = store.client().json::<Stock>("stock");
    let first = stock.create(Stock { left: 1 }).await.unwrap().version;
    let second = store
        .client()
        .json::<Stock>("stock")
        .replace(&first, Stock { left: 2 })
        .await
        .unwrap();
    let error = stock.replace(&first, Stock { left: 3 }).await.unwrap_err();
    assert_eq!(
        *error.kind(),
        ErrorKind::Conflict {
            current: Some(second.version)
        }
    );
    assert_eq!(stock.get().await.unwrap().unwrap().value, Stock { left: 2 });
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Page {
    hits: u32,
    title: String,
}

/// A server that names no tag in its responses to writes. After the first write, a program without this library sets the
/// title, and keeps the members that it doesn't know.
struct Edited(Memory);

impl Edited {
    async fn edit(&self, key: &str) {
        let Read::Found(Found {
            body,
            version: Some(version),
            ..
        }) = self.0.get(key, None, None).await.unwrap()
        else {
            panic!("it was written");
        };
        let mut page: serde_json::Value = serde_json::from_slice(&body).unwrap();
        if page["title"] == "" {
            page["title"] = "by hand".into();
            let put = Put {
                body: page.to_string().into(),
                when: When::Is(version),
                id: String::new(),
                fence: None,
            };
            self.0.put(key, &put).await.unwrap();
        }
    }
}

impl Backend for Edited {
    fn get<'a>(
        &'a self,
        key: &'a str,
        known: Option<&'a Version>,
        wait: Option<Duration>,
    ) -> BoxFuture<'a, Result<Read, Error>> {
        self.0.get(key, known, wait)
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        put: &'a Put,
    ) -> BoxFuture<'a, Result<Option<Version>, Error>> {
        async move {
            self.0.put(key, put).await?;
            self.edit(key).await;
            Ok(None)
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.0.delete(key, version)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        self.0.list(prefix)
    }
}

/// The program's change comes between a write and the read that settles it, and leaves the stamp of that write.
#[tokio::test]
async fn a_change_that_keeps_the_stamp_is_not_overwritten() {
    let page = Client::new(Edited(Memory::default())).json::<Page>("page");
    for _ in 0..2 {
        page.update(|page| page.hits += 1).await.unwrap();
    }
    assert_eq!(
        page.get().await.unwrap().unwrap().value,
        Page {
            hits: 2,
            title: "by hand".to_owned()
        }
    );
}

/// Updates of clones take turns. The time of those that wait counts, too.
#[tokio::test(start_paused = true)]
async fn updates_that_wait_for_their_turn_end_with_their_time() {
    let store = Store::default();
    let connection = store.connect();
    connection.cut();
    let hits = Client::new(connection)
        .with_clock(Steady)
        .json::<u64>("hits");
    let updates = join_all((0..20).map(|_| hits.update(|count| *count += 1)));
    let ended = tokio::time::timeout(Duration::from_mins(1), updates)
        .await
        .expect("each waits for those before it");
    assert!(ended.iter().all(Result::is_err));
}

/// 409 of a store that is busy with another request. The condition still holds.
#[tokio::test(start_paused = true)]
async fn a_busy_store_is_no_conflict() {
    let store = Store::default();
    let note = store.client().json::<u8>("note");
    let first = note.create(1).await.unwrap().version;
    store.fail(|number| if number < 4 { Fault::Busy } else { Fault::None });
    assert_eq!(
        note.replace(&first, 2)
            .await
            .expect("no other client has written")
            .value,
        2
    );
}

/// The store is busy for longer than the client waits. Nothing was written, and no one else has written.
#[tokio::test(start_paused = true)]
async fn a_store_that_stays_busy_is_a_conflict_in_the_end() {
    let store = Store::default();
    let note = store
        .client()
        .with_patience(Duration::from_secs(5))
        .json::<u8>("note");
    let first = note.create(1).await.unwrap().version;
    store.fail(|_| Fault::Busy);
    let error = note.replace(&first, 2).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Conflict { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_update_waits_for_as_long_as_the_store_asks() {
    const DELAY: Duration = Duration::from_secs(20);
    let store = Store::default();
    store.fail(|number| {
        if number == 0 {
            Fault::Later(DELAY)
        } else {
            Fault::None
        }
    });
    let begin = tokio::time::Instant::now();
    store
        .client()
        .json::<u8>("note")
        .update(|note| *note += 1)
        .await
        .unwrap();
    // Of the paused time.
    assert!(
        begin.elapsed() >= DELAY && store.writes() == 2,
        "{} writes after {:?}",
        store.writes(),
        begin.elapsed()
    );
}
