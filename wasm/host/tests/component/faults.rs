//! Guests that trap, and a gateway that is killed, in the middle of writes.

use std::time::{Duration, Instant};

use component_host::{Instance, LIMIT, Network, request};
use futures_util::future::join_all;

use crate::gateway::Gateway;
use crate::{call, eventually, start};

const NOTE: &str = "/notes/a";
const PUT: &str = "PUT /notes/a";
const GET: &str = "GET /notes/a";

/// When the gateway is killed.
#[derive(Clone, Copy, Debug)]
enum Kill {
    /// While writers ask for permits.
    AtOnce,
    /// While a guest writes, so that its permit is stored and its commit fails.
    DuringTheWrite,
    /// While the writer commits, or right after it was answered.
    AfterTheWrite,
}

/// A gateway is killed and starts again on its data while sixteen writers at two instances name one tag. For two of them, A and B:
///
/// 1. A's permit is stored, and the gateway dies before it says so. A must not write, since it doesn't know. The others wait until
///    the permit has ended; then one of them goes on.
/// 2. A has its permit and writes, and the gateway dies before A's commit. If it forgot the permit, B would get one for the old tag
///    and erase A's write: B waits for the end of A's permit, asks the guest for its version, and gets 412.
/// 3. A's commit is stored, and the gateway dies before or after it says so. If it forgot the commit, B would get a permit for the old
///    tag, and with an authoritative register not even ask the guest.
///
/// So whatever the writers are told, the service gets one write for each tag, at most one writer hears that it has won, and if one
/// does, the write is its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_killed_lets_no_two_writers_win_and_loses_no_write() {
    tokio::join!(race_with_kills("false"), race_with_kills("true"));
}

async fn race_with_kills(authoritative: &str) {
    let (network, mut gateway) = (Network::default(), Gateway::start().await);
    let folder = gateway.folder();
    let settings = [
        ("IFMATCH_REGISTER", folder.as_str()),
        ("IFMATCH_AUTHORITATIVE", authoritative),
        ("IFMATCH_WRITE_TIMEOUT", "3"),
    ];
    let instances = [start(&network, &settings), start(&network, &settings)];
    let mut tag = call(&instances[0], PUT, &[("if-none-match", "*")], "0")
        .await
        .field("etag")
        .to_owned();
    let kills = [Kill::AtOnce, Kill::DuringTheWrite, Kill::AfterTheWrite].repeat(3);
    for (round, kill) in kills.into_iter().enumerate() {
        let shown = format!("round {round}, {kill:?}, authoritative: {authoritative}");
        let before = network.notes.writes(NOTE);
        let writers = (0..16).map(|writer| {
            write(
                &instances[writer % 2],
                &tag,
                format!("{round} by {writer}"),
                &shown,
            )
        });
        let fault = async {
            let mut held = None;
            match kill {
                Kill::AtOnce => {}
                Kill::DuringTheWrite => {
                    held = Some(network.notes.hold().await);
                    eventually("a guest writes", || network.notes.is_written_to()).await;
                }
                Kill::AfterTheWrite => {
                    eventually("a guest has written", || {
                        network.notes.writes(NOTE) > before
                    })
                    .await;
                }
            }
            gateway.kill().await;
            gateway.start_again().await;
            if held.is_some() {
                // A forgotten permit would let another writer in.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let (won, ()) = tokio::join!(join_all(writers), fault);
        let won: Vec<_> = won.into_iter().flatten().collect();
        assert!(won.len() <= 1, "{shown}: {won:?}");
        assert_eq!(
            network.notes.writes(NOTE) - before,
            1,
            "{shown}: writes that name one tag; winner: {won:?}"
        );
        let read = call(&instances[round % 2], GET, &[], "").await;
        if let [(content, next)] = &won[..] {
            assert_eq!(read.text(), *content, "{shown}");
            // A winner that couldn't commit isn't told a tag.
            assert!(
                next.is_empty() || read.field("etag") == next,
                "{shown}: {next} {read:?}"
            );
        }
        assert_ne!(read.field("etag"), tag, "{shown}");
        read.field("etag").clone_into(&mut tag);
    }
    for instance in &instances {
        let written = write(instance, &tag, format!("after {tag}"), "afterwards").await;
        (_, tag) = written.expect("the only writer wins");
    }
}

/// Writes on the condition of a tag until the answer is clear. Returns the content and its tag, or `None` if it was too late.
pub(crate) async fn write(
    instance: &Instance,
    tag: &str,
    content: String,
    shown: &str,
) -> Option<(String, String)> {
    let begin = Instant::now();
    loop {
        let answer = instance
            .call(request(PUT, &[("if-match", tag)], content.clone()))
            .await
            .unwrap();
        match answer.status() {
            412 => return None,
            // Others have been writing for ten seconds, the gateway is down, or it is unknown whether this write was done.
            409 | 503 => assert!(
                begin.elapsed() < LIMIT,
                "{shown}: no clear answer within a minute: {answer:?}"
            ),
            status => {
                assert!((200..300).contains(&status), "{shown}: {answer:?}");
                return Some((content, answer.field("etag").to_owned()));
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A trap ends the whole instance, including ifmatch and every request in flight. Its permit lasts until the write timeout, so no one
/// else writes before then. The next writer asks the guest for its version: if the guest had already written, the old tag gets 412.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_trap_during_a_write_another_instance_goes_on() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    for (trap, is_stored) in [("early", false), ("late", true)] {
        let (network, gateway) = (Network::default(), Gateway::start().await);
        let folder = gateway.folder();
        let settings = [
            ("IFMATCH_REGISTER", folder.as_str()),
            ("IFMATCH_WRITE_TIMEOUT", "2"),
        ];
        let (first, second) = (start(&network, &settings), start(&network, &settings));
        network.notes.put(NOTE, "1");
        let tag = call(&first, GET, &[], "").await.field("etag").to_owned();
        let begin = Instant::now();
        // Without a condition, so the guest isn't asked before the permit is granted.
        assert!(
            first
                .call(request(PUT, &[("x-trap", trap)], "trapped"))
                .await
                .is_err()
        );
        assert!(
            first.call(request(GET, &[], "")).await.is_err(),
            "the instance has ended"
        );
        assert_eq!(
            network.notes.get(NOTE).unwrap(),
            if is_stored { "trapped" } else { "1" }
        );
        let written = write(&second, &tag, "2".to_owned(), trap).await;
        assert!(
            begin.elapsed() >= TIMEOUT,
            "{trap}: the permit didn't last: {written:?}"
        );
        assert_eq!(written.is_none(), is_stored, "{trap}: {written:?}");
        let tag = call(&second, GET, &[], "").await.field("etag").to_owned();
        assert!(
            write(&second, &tag, "3".to_owned(), trap).await.is_some(),
            "{trap}"
        );
        assert_eq!(network.notes.get(NOTE).unwrap(), "3");
    }
}

/// A's guest is slow, and its permit ends. If what the guest sends to its server weren't cancelled, it could arrive after B, who
/// got the next permit, and erase B's write.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_beyond_its_time_is_cancelled_and_does_not_arrive_late() {
    let (network, gateway) = (Network::default(), Gateway::start().await);
    let folder = gateway.folder();
    let settings = [
        ("IFMATCH_REGISTER", folder.as_str()),
        ("IFMATCH_WRITE_TIMEOUT", "2"),
    ];
    let instance = start(&network, &settings);
    network.notes.put(NOTE, "1");
    let held = network.notes.hold().await;
    let late = call(&instance, PUT, &[], "late").await;
    assert!((500..600).contains(&late.status()), "{late:?}");
    drop(held);
    let tag = call(&instance, GET, &[], "").await.field("etag").to_owned();
    assert!(
        write(&instance, &tag, "2".to_owned(), "after a late write")
            .await
            .is_some()
    );
    assert!(
        !network.notes.is_written_to(),
        "the late write is still on its way"
    );
    assert_eq!(
        (network.notes.writes(NOTE), network.notes.get(NOTE).unwrap()),
        (2, "2".into())
    );
}
