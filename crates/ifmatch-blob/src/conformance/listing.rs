//! Listings are complete and ordered, and their tags can be used in conditions.

use ifmatch_core::precondition::Preconditions;

use super::{Subject, blob, if_match};
use crate::name::ContainerName;
use crate::store::ListQuery;

/// In the order of their bytes: `-` and `.` before `/`, upper case before lower case.
const NAMES: [&str; 10] = [
    "B", "a", "a-b", "a.b", "a/b", "a/b.c", "a/c/d", "a0", "ab", "ü",
];
/// Names that a folder can have at the same time.
const FILES: [&str; 9] = ["B", "a-b", "a.b", "a/b", "a/b.c", "a/c/d", "a0", "ab", "ü"];

pub(crate) async fn check(subject: &Subject) {
    the_pages_list_the_whole_container(subject).await;
    a_container_outlives_its_blobs(subject).await;
    containers_are_listed(subject).await;
}

fn query(prefix: &str, limit: usize) -> ListQuery {
    ListQuery {
        prefix: prefix.to_owned(),
        leases: true,
        ..ListQuery::first(limit)
    }
}

async fn names(subject: &Subject, container: &str, mut query: ListQuery) -> Vec<String> {
    let container = ContainerName::new(container).unwrap();
    let mut names = Vec::new();
    loop {
        let page = subject
            .store
            .list(&container, &query)
            .await
            .unwrap()
            .expect("there is such a container");
        assert!(page.items.len() <= query.limit);
        names.extend(page.items.iter().map(|item| item.name.to_string()));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return names,
        }
    }
}

async fn the_pages_list_the_whole_container(subject: &Subject) {
    // A folder can't contain the blobs a and a/b. There is no other difference.
    let written: &[&str] = if subject.nests { &NAMES } else { &FILES };
    for name in written.iter().rev() {
        subject.write(&blob("listing", name), *name).await;
    }
    subject.write(&blob("listing2", "other"), "").await;
    for prefix in ["", "a", "a/", "a/b", "a/b.c", "a/c/", "x", "/", "a//", "ü"] {
        let expected: Vec<_> = written
            .iter()
            .filter(|name| name.starts_with(prefix))
            .collect();
        for limit in [1, 2, 3, 100] {
            assert_eq!(
                names(subject, "listing", query(prefix, limit)).await,
                expected_text(&expected),
                "{prefix} {limit}"
            );
        }
    }
    for after in ["", "A", "a", "a/", "a/b", "a/bb", "zz", "ü"] {
        let expected: Vec<_> = written.iter().filter(|name| **name > after).collect();
        let query = ListQuery {
            after: Some(after.to_owned()),
            ..query("", 4)
        };
        assert_eq!(
            names(subject, "listing", query).await,
            expected_text(&expected),
            "{after}"
        );
    }
    let container = ContainerName::new("listing").unwrap();
    let page = subject
        .store
        .list(&container, &query("", 100))
        .await
        .unwrap()
        .unwrap();
    for item in page.items {
        let blob = blob("listing", item.name.as_str());
        assert_eq!(item.info.length, item.name.as_str().len() as u64);
        subject
            .write_if(&blob, if_match(&item.info.tag.expect("a tag")), "")
            .await
            .expect("the tag is the current one");
    }
}

fn expected_text(names: &[&&str]) -> Vec<String> {
    names.iter().map(|name| (**name).to_owned()).collect()
}

async fn a_container_outlives_its_blobs(subject: &Subject) {
    let container = ContainerName::new("emptied").unwrap();
    assert!(
        subject
            .store
            .list(&container, &query("", 1))
            .await
            .unwrap()
            .is_none()
    );
    subject.write(&blob("emptied", "x/y"), "").await;
    assert!(
        subject
            .store
            .list(&container, &query("nothing", 1))
            .await
            .unwrap()
            .unwrap()
            .items
            .is_empty()
    );
    subject
        .delete_if(&blob("emptied", "x/y"), Preconditions::default())
        .await
        .unwrap();
    let page = subject
        .store
        .list(&container, &query("", 1))
        .await
        .unwrap()
        .expect("it still exists");
    assert!(page.items.is_empty() && page.next.is_none());
}

async fn containers_are_listed(subject: &Subject) {
    for container in ["list-c", "list-a", "list-b"] {
        subject.write(&blob(container, "x"), "").await;
    }
    for limit in [1, 2, 3] {
        let mut query = query("list-", limit);
        let mut names = Vec::new();
        loop {
            let page = subject.store.containers(&query).await.unwrap();
            names.extend(page.items.iter().map(|item| item.name.to_string()));
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(names, ["list-a", "list-b", "list-c"]);
    }
    assert!(
        subject
            .store
            .containers(&query("nothing", 1))
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
