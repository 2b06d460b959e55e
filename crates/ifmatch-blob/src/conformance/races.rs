//! Of several writers with the same precondition, exactly one wins.

use std::collections::HashMap;

use futures_util::future::join_all;
use ifmatch_core::EntityTag;
use ifmatch_core::precondition::Preconditions;

use super::{Subject, blob, if_absent, if_match};
use crate::name::BlobPath;
use crate::store::StoreErrorKind;

const ROUNDS: usize = 8;

pub(crate) async fn check(subject: &Subject) {
    one_creator_wins(subject).await;
    every_unconditional_writer_succeeds(subject).await;
    no_increment_is_lost(subject).await;
    one_deletion_succeeds(subject).await;
    bytes_come_with_their_own_tag(subject).await;
}

async fn one_creator_wins(subject: &Subject) {
    let blob = blob("races", "create");
    let results =
        join_all((0..50).map(|writer| subject.write_if(&blob, if_absent(), format!("{writer}"))))
            .await;
    let winners: Vec<_> = results
        .iter()
        .enumerate()
        .filter(|(_, result)| result.is_ok())
        .collect();
    let [(winner, Ok(written))] = winners[..] else {
        panic!("{} winners", winners.len())
    };
    let (info, bytes) = subject.read(&blob).await.unwrap();
    assert_eq!(
        (info.tag, bytes),
        (written.tag.clone(), winner.to_string().into())
    );
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(
            matches!(error.kind(), StoreErrorKind::PreconditionFailed { .. }),
            "{error}"
        );
    }
}

async fn every_unconditional_writer_succeeds(subject: &Subject) {
    let blob = blob("races-new", "new");
    let written =
        join_all((0..subject.writers).map(|writer| subject.write(&blob, format!("{writer}"))))
            .await;
    assert_eq!(written.iter().filter(|written| written.created).count(), 1);
    let tags: HashMap<_, _> = written
        .iter()
        .enumerate()
        .map(|(writer, written)| (&written.tag, writer))
        .collect();
    assert_eq!(tags.len(), subject.writers, "no two versions share a tag");
    let (info, bytes) = subject.read(&blob).await.unwrap();
    assert_eq!(bytes, tags[&info.tag].to_string());
}

async fn no_increment_is_lost(subject: &Subject) {
    let blob = blob("races", "counter");
    subject.write(&blob, "0").await;
    count(&[subject], subject.writers, &blob).await;
}

/// Increments a number in a blob by this many writers at a time, each through one of the subjects.
///
/// # Panics
/// An increment is lost.
pub async fn count(subjects: &[&Subject], writers: usize, blob: &BlobPath) {
    let increment = async |subject: &Subject| {
        for _ in 0..ROUNDS {
            loop {
                let (info, bytes) = subject.read(blob).await.unwrap();
                let next = std::str::from_utf8(&bytes)
                    .unwrap()
                    .parse::<usize>()
                    .unwrap()
                    + 1;
                match subject
                    .write_if(blob, if_match(&info.tag.unwrap()), next.to_string())
                    .await
                {
                    Ok(_) => break,
                    Err(error) => match error.kind() {
                        StoreErrorKind::PreconditionFailed { .. }
                        | StoreErrorKind::InFlight { .. } => {}
                        _ => panic!("{error}"),
                    },
                }
            }
        }
    };
    join_all((0..writers).map(|writer| increment(subjects[writer % subjects.len()]))).await;
    for subject in subjects {
        assert_eq!(
            subject.read(blob).await.unwrap().1,
            (writers * ROUNDS).to_string()
        );
    }
}

async fn one_deletion_succeeds(subject: &Subject) {
    let blob = blob("races", "delete");
    let tag = subject.write(&blob, "x").await.tag.unwrap();
    let results = join_all((0..10).map(|_| subject.delete_if(&blob, if_match(&tag)))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for error in results.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), &StoreErrorKind::NotFound);
    }
}

/// Every version repeats a unique byte value, which reveals mixtures and tags of other versions.
async fn bytes_come_with_their_own_tag(subject: &Subject) {
    let blob = blob("races", "overwrite");
    let version = |filler: u8| vec![filler; 150_000 + usize::from(filler)];
    let mut versions: HashMap<EntityTag, u8> = HashMap::new();
    versions.insert(subject.write(&blob, version(0)).await.tag.unwrap(), 0);
    let writing = async {
        let mut written = Vec::new();
        for filler in 1..=25 {
            written.push((
                subject
                    .write_if(&blob, Preconditions::default(), version(filler))
                    .await,
                filler,
            ));
        }
        written
    };
    let reading = async {
        let mut read = Vec::new();
        for _ in 0..60 {
            let (info, bytes) = subject.read(&blob).await.unwrap();
            assert_eq!(info.length, bytes.len() as u64);
            assert_eq!(bytes, version(bytes[0]), "a mixture");
            read.push((info.tag.unwrap(), bytes[0]));
        }
        read
    };
    let (written, read, more) = futures_util::join!(writing, reading, async {
        let (info, bytes) = subject.read(&blob).await.unwrap();
        vec![(info.tag.unwrap(), bytes[0])]
    });
    for (result, filler) in written {
        versions.insert(result.unwrap().tag.unwrap(), filler);
    }
    assert_eq!(versions.len(), 26, "no two versions share a tag");
    for (tag, filler) in read.into_iter().chain(more) {
        assert_eq!(versions.get(&tag), Some(&filler), "{tag}");
    }
}
