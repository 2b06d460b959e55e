//! Leases that end during a write: never two holders, and no write by a former holder.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::scope;
use std::time::Duration;

use support::raw::Connection;
use support::{Answer, eventually};

use crate::azure::{A, B, acquire, blob};
use crate::http::{Http, head};
use crate::races::winners::until_done;
use crate::races::{RACERS, race};
use crate::site::Site;
use crate::suite::Suite;

/// Length of each half of a body.
const HALF: usize = 40_000;
/// How long the other client may take to acquire the lease before the rest of the first one's body is sent.
const TIME_TO_ACQUIRE: Duration = Duration::from_secs(2);

pub(crate) fn add(suite: &mut Suite) {
    suite.case(
        "lease race: a lease expires during its holder's write",
        |site| lost(site, 15, false),
    );
    suite.case(
        "lease race: a lease is broken during its holder's write",
        |site| lost(site, -1, true),
    );
    suite.case(
        "lease race: a lease is released during its holder's write",
        released,
    );
    suite.case("lease race: a break among renewals", broken);
    suite.case("lease race: changes of one lease to different ids", changed);
    suite.case(
        "lease race: holders take turns, and none writes during another's turn",
        turns,
    );
}

/// A write by A, with half of its body sent.
struct Slow {
    connection: Connection,
}

impl Slow {
    fn begin(site: &Site, path: &str) -> Self {
        let fields = [("x-ms-blob-type", "BlockBlob"), ("x-ms-lease-id", A)];
        let request = site
            .azure()
            .request("PUT", path, &fields, &vec![b'a'; 2 * HALF]);
        let mut connection = Connection::open(site.address());
        connection.send(
            [
                head(&request, "localhost").as_bytes(),
                &request.body()[..HALF],
            ]
            .concat(),
        );
        Self { connection }
    }

    /// Returns the response. The Worker's runtime may close the connection instead if it rejected the request before
    /// the body.
    fn end(mut self, site: &Site) -> Option<Answer> {
        // The server may already have rejected the request and closed the connection.
        drop(self.connection.try_send(vec![b'a'; HALF]));
        let answer = self.connection.answer_unless_closed();
        assert!(
            answer.is_some() || site.server == "worker",
            "closed without an answer"
        );
        answer
    }
}

/// A's lease ends during A's write; B acquires it and writes. In any order, B's write isn't lost, and A's write does
/// not succeed after B's acquisition.
fn lost(site: &Site, seconds: i32, broken: bool) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    acquire(&mut http, &path, A, seconds).is(201);
    let slow = Slow::begin(site, &path);
    if broken {
        http.lease(&path, "break", &[("x-ms-lease-break-period", "0")])
            .is(202);
    } else {
        eventually("the lease to expire", || {
            (http.head(&path).is(200).field("x-ms-lease-state") == "expired").then_some(())
        });
    }
    let (tell, told) = channel();
    scope(|scope| {
        let other = scope.spawn(|| {
            let mut http = site.azure();
            let held = eventually("B's lease", || {
                Some(acquire(&mut http, &path, B, -1)).filter(|reply| reply.status == 201)
            });
            tell.send(()).expect("the other thread waits");
            http.upload(&path, &[("x-ms-lease-id", B)], "by B").is(201);
            held
        });
        // A server may let B wait for the write in flight.
        let before = told.recv_timeout(TIME_TO_ACQUIRE).is_ok();
        let answer = slow.end(site);
        let status = answer.as_ref().map_or(412, |answer| answer.status.as_u16());
        assert!(
            status == 412 || (!before && status == 201),
            "A after B had the lease ({before}): {answer:?}"
        );
        other
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert_eq!(http.get(&path).is(200).text(), "by B");
    http.upload(&path, &[("x-ms-lease-id", A)], "by A")
        .refused(412, "LeaseIdMismatchWithBlobOperation");
}

/// A client that releases its lease during its own write has no lease afterwards.
fn released(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    acquire(&mut http, &path, A, -1).is(201);
    let slow = Slow::begin(site, &path);
    http.lease(&path, "release", &[("x-ms-lease-id", A)])
        .is(200);
    let tag = http
        .upload(&path, &[], "in between")
        .is(201)
        .etag()
        .to_owned();
    if let Some(answer) = slow.end(site) {
        answer.expect(412);
    }
    assert_eq!(http.get(&path).is(200).etag(), tag);
}

/// After a break, no renewal succeeds.
fn broken(site: &Site) {
    let path = blob(&mut site.azure(), site);
    acquire(&mut site.azure(), &path, A, -1).is(201);
    let broke = AtomicBool::new(false);
    race(10, |racer| {
        let mut http = site.azure();
        if racer == 0 {
            http.lease(&path, "break", &[("x-ms-lease-break-period", "0")])
                .is(202);
            broke.store(true, Ordering::SeqCst);
            return;
        }
        for _ in 0..5 {
            let before = broke.load(Ordering::SeqCst);
            let reply = http.lease(&path, "renew", &[("x-ms-lease-id", A)]);
            match reply.status.as_u16() {
                200 if !before => {}
                409 => reply.refused(409, "LeaseIsBrokenAndCannotBeRenewed"),
                _ => reply.fail("a renewal before the break, or a rejection"),
            }
        }
    });
    let mut http = site.azure();
    assert_eq!(
        http.head(&path).is(200).header("x-ms-lease-state"),
        "broken"
    );
    acquire(&mut http, &path, B, -1).is(201);
}

/// One of many changes from A's id succeeds; the others no longer name the holder.
fn changed(site: &Site) {
    let path = blob(&mut site.azure(), site);
    acquire(&mut site.azure(), &path, A, -1).is(201);
    let id = |racer: usize| format!("c0000000-0000-4000-8000-{racer:012}");
    let replies = race(RACERS, |racer| {
        let fields = [
            ("x-ms-lease-id", A),
            ("x-ms-proposed-lease-id", &*id(racer)),
        ];
        site.azure().lease(&path, "change", &fields).status.as_u16()
    });
    let winners: Vec<usize> = (0..RACERS).filter(|racer| replies[*racer] == 200).collect();
    let [winner] = winners[..] else {
        panic!("winners: {winners:?}")
    };
    assert!(
        replies.iter().all(|status| matches!(status, 200 | 409)),
        "{replies:?}"
    );
    site.azure()
        .upload(&path, &[("x-ms-lease-id", &id(winner))], "x")
        .is(201);
    site.azure()
        .upload(&path, &[("x-ms-lease-id", A)], "x")
        .is(412);
}

/// A lock: a lease around a read and an unconditional write. Two holders at once would lose an increment.
fn turns(site: &Site) {
    const CLIENTS: usize = 8;
    const TURNS: usize = 4;
    let path = blob(&mut site.azure(), site);
    site.azure().upload(&path, &[], "0").is(201);
    race(CLIENTS, |client| {
        let mut http = site.azure();
        let id = format!("d0000000-0000-4000-8000-{client:012}");
        for _ in 0..TURNS {
            turn(&mut http, &path, &id);
        }
    });
    assert_eq!(
        site.azure().get(&path).is(200).text(),
        (CLIENTS * TURNS).to_string()
    );
}

fn turn(http: &mut Http<'_>, path: &str, id: &str) {
    until_done(|| acquire(http, path, id, -1));
    let next = http
        .get(path)
        .is(200)
        .text()
        .parse::<usize>()
        .expect("a number")
        + 1;
    http.upload(path, &[("x-ms-lease-id", id)], next.to_string())
        .is(201);
    http.lease(path, "release", &[("x-ms-lease-id", id)])
        .is(200);
}
