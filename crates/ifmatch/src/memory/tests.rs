//! Tests of the memory, for both implementations.

use std::sync::atomic::AtomicU64;

use http::{HeaderMap, HeaderValue};
use ifmatch_core::EntityTag;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::record::{Revision, Variant};
use ifmatch_register::Key;

use crate::memory::RememberedHead;
use crate::read::vary::VaryFields;

const CAPACITY: u64 = 100_000;

fn key(number: usize) -> Key {
    Key::new(format!("/{number}")).unwrap()
}

fn response(variant: &str, size: usize) -> RememberedHead {
    let mut headers = HeaderMap::new();
    headers.insert("x", HeaderValue::try_from("x".repeat(size)).unwrap());
    RememberedHead {
        variant: Variant(variant.into()),
        generation: Revision::new(1),
        tag: EntityTag::strong("1").unwrap(),
        last_modified: HttpDate::from_unix(1),
        date: HttpDate::from_unix(1).to_header(),
        headers,
        born: Timestamp::default(),
        fresh_until: Timestamp::default(),
        checked: AtomicU64::new(0),
        settled: AtomicU64::new(1),
    }
}

/// Runs the same tests for each implementation.
macro_rules! of_each {
    ($($name:ident: $Memory:ty),*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn a_response_is_found_until_it_is_forgotten() {
                let memory = <$Memory>::with_capacity(CAPACITY);
                memory.remember(&key(1), VaryFields::default(), response("a", 10));
                memory.remember(&key(1), VaryFields::default(), response("b", 10));
                memory.remember(&key(2), VaryFields::default(), response("a", 10));
                assert!(memory.get(&key(1)).unwrap().find(None, &HeaderMap::new()).is_none());
                memory.remember(&key(1), VaryFields::default(), response(&Variant::only().0, 10));
                assert!(memory.get(&key(1)).unwrap().find(None, &HeaderMap::new()).is_some());
                memory.forget(&key(1));
                assert!(memory.get(&key(1)).is_none());
                assert!(memory.get(&key(2)).is_some());
            }

            #[test]
            fn the_size_in_bytes_is_bounded() {
                let memory = <$Memory>::with_capacity(CAPACITY);
                for number in 0..500 {
                    memory.remember(&key(number), VaryFields::default(), response("a", 4_000));
                }
                let mut next = 500;
                loop {
                    let kept = (0..next).filter(|number| memory.get(&key(*number)).is_some()).count();
                    assert!(kept > 0, "nothing was kept");
                    if kept <= 25 {
                        break;
                    }
                    // Entries over the limit may be evicted a little later.
                    assert!(next < 2_000, "{kept} entries of 4,000 bytes in {CAPACITY} bytes");
                    memory.remember(&key(next), VaryFields::default(), response("a", 4_000));
                    next += 1;
                }
            }

            #[test]
            fn a_response_larger_than_the_capacity_is_not_kept() {
                let memory = <$Memory>::with_capacity(CAPACITY);
                memory.remember(&key(1), VaryFields::default(), response("a", 200_000));
                for number in 2..1_000 {
                    memory.remember(&key(number), VaryFields::default(), response("a", 10));
                }
                assert!(memory.get(&key(1)).is_none());
            }
        }
    )*};
}

of_each!(moka: crate::memory::ResponseMemory, quick_cache: crate::memory::quick_cache::ResponseMemory);
