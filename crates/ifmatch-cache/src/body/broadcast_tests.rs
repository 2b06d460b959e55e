//! Orders of events between a writer and its readers.

use futures_util::task::noop_waker;

use super::*;
use crate::body::budget::ByteBudget;

fn broadcast() -> Arc<BodyBroadcast> {
    Arc::new(BodyBroadcast::new(
        None,
        ByteBudget::of(1 << 20).reserve(1 << 20),
        false,
        false,
    ))
}

fn next(reader: &mut BroadcastReader) -> Poll<Option<Result<Frame<Bytes>, ReaderStop>>> {
    reader.poll_frame(&mut Context::from_waker(&noop_waker()))
}

fn is_ready(broadcast: &BodyBroadcast) -> bool {
    broadcast
        .poll_room(&mut Context::from_waker(&noop_waker()))
        .is_ready()
}

#[test]
fn a_reader_that_joins_late_gets_the_whole_body_or_none() {
    let [complete, broken] = [broadcast(), broadcast()];
    complete.push(Bytes::from_static(b"all"));
    complete.complete(None, None);
    let mut reader = complete.join().unwrap();
    assert!(matches!(next(&mut reader), Poll::Ready(Some(Ok(_)))) && reader.is_at_end());
    assert!(matches!(next(&mut reader), Poll::Ready(None)));
    broken.push(Bytes::from_static(b"some"));
    broken.abandon();
    assert!(broken.join().is_none());
}

#[test]
fn the_writer_waits_for_the_fastest_and_for_those_that_cannot_resume() {
    let broadcast = broadcast();
    let (mut fast, slow) = (broadcast.join().unwrap(), broadcast.join().unwrap());
    broadcast.push(vec![0; 50 << 10].into());
    assert!(is_ready(&broadcast));
    broadcast.push(vec![0; 50 << 10].into());
    assert!(!is_ready(&broadcast), "too far ahead of both");
    assert!(
        next(&mut fast).is_ready() && is_ready(&broadcast),
        "close to one, and all bytes are kept"
    );
    broadcast.stop_storing();
    assert!(
        next(&mut fast).is_ready() && !is_ready(&broadcast),
        "the bytes of the slow one are not kept"
    );
    fast.can_resume();
    slow.can_resume();
    assert!(is_ready(&broadcast));
    drop(fast);
    assert!(!is_ready(&broadcast), "now the slow one is the fastest");
    drop(slow);
    assert!(is_ready(&broadcast), "no readers");
}

#[test]
fn a_reader_that_falls_behind_gets_its_position() {
    let broadcast = broadcast();
    let (mut fast, mut slow) = (broadcast.join().unwrap(), broadcast.join().unwrap());
    slow.can_resume();
    broadcast.push(vec![0; 5_000].into());
    broadcast.stop_storing();
    assert!(next(&mut slow).is_ready());
    for _ in 0..10 {
        broadcast.push(vec![0; 100_000].into());
        assert!(next(&mut fast).is_ready());
    }
    // It is one chunk behind.
    assert!(next(&mut fast).is_ready());
    assert!(matches!(
        next(&mut slow),
        Poll::Ready(Some(Err(ReaderStop::Behind(5_000))))
    ));
    assert!(matches!(next(&mut slow), Poll::Ready(None)));
}

/// Something that a reader waits for.
type Event = fn(&BodyBroadcast);
/// Something that the writer waits for. Returns the reader, unless it is gone.
type Step = fn(BroadcastReader) -> Option<BroadcastReader>;

/// A waker that remembers its call.
#[derive(Default)]
struct Woken(std::sync::atomic::AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_waiting_reader_or_writer_is_woken() {
    let events: [Event; 4] = [
        |broadcast| assert!(broadcast.push(Bytes::from_static(b"more"))),
        |broadcast| broadcast.complete(None, None),
        |broadcast| broadcast.abandon(),
        |broadcast| broadcast.fail(Box::<dyn Error + Send + Sync>::from("x").into()),
    ];
    for event in events {
        let (broadcast, woken) = (broadcast(), Arc::<Woken>::default());
        let mut reader = broadcast.join().unwrap();
        assert!(
            reader
                .poll_frame(&mut Context::from_waker(&Arc::clone(&woken).into()))
                .is_pending()
        );
        event(&broadcast);
        assert!(woken.0.load(std::sync::atomic::Ordering::SeqCst));
    }
    let steps: [Step; 3] = [
        |_| None,
        |reader| {
            reader.can_resume();
            Some(reader)
        },
        |mut reader| next(&mut reader).is_ready().then_some(reader),
    ];
    for step in steps {
        let (broadcast, woken) = (broadcast(), Arc::<Woken>::default());
        let (mut fast, slow) = (broadcast.join().unwrap(), broadcast.join().unwrap());
        broadcast.push(vec![0; 400 << 10].into());
        broadcast.stop_storing();
        assert!(next(&mut fast).is_ready());
        assert!(
            broadcast
                .poll_room(&mut Context::from_waker(&Arc::clone(&woken).into()))
                .is_pending()
        );
        let slow = step(slow);
        assert!(woken.0.load(std::sync::atomic::Ordering::SeqCst) && is_ready(&broadcast));
        drop(slow);
    }
}
