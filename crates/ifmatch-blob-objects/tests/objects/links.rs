//! Symbolic links in a folder aren't followed: nothing outside of the folder is read, listed, written or removed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use futures_util::StreamExt;
use ifmatch_blob::conformance::{Subject, blob, kind, pattern, put};
use ifmatch_blob::store::{Delete, ListQuery, Put, StoreErrorKind, Upload};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::{LONG, folder, objects, open, subject};

struct Place {
    root: tempfile::TempDir,
    subject: Subject,
}

impl Place {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("store/docs")).unwrap();
        fs::create_dir_all(root.path().join("outside/deep")).unwrap();
        fs::write(root.path().join("store/docs/real"), "inside").unwrap();
        fs::write(root.path().join("outside/secret"), "outside").unwrap();
        fs::write(root.path().join("outside/deep/secret"), "outside").unwrap();
        symlink(
            root.path().join("outside/secret"),
            root.path().join("store/docs/link"),
        )
        .unwrap();
        symlink(
            root.path().join("outside"),
            root.path().join("store/docs/dir"),
        )
        .unwrap();
        symlink(root.path().join("outside"), root.path().join("store/outer")).unwrap();
        // Following this link never ends.
        symlink(
            root.path().join("store"),
            root.path().join("store/docs/round"),
        )
        .unwrap();
        let subject = subject(open(folder(&root.path().join("store"))).await);
        Self { root, subject }
    }

    /// Returns all files outside of the store, with their bytes.
    fn outside(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut open = vec![self.root.path().join("outside")];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    found.push((path.clone(), fs::read(path).unwrap()));
                }
            }
        }
        found.sort();
        found
    }
}

const LEADS_OUT: [(&str, &str); 5] = [
    ("docs", "link"),
    ("docs", "dir/secret"),
    ("docs", "dir/deep/secret"),
    ("outer", "secret"),
    ("docs", "round/docs/real"),
];

#[tokio::test]
async fn the_target_of_a_link_is_not_read_or_listed() {
    let place = Place::new().await;
    for (container, name) in LEADS_OUT {
        assert!(
            place.subject.read(&blob(container, name)).await.is_none(),
            "{container}/{name}"
        );
    }
    let query = ListQuery::first(100);
    let listed = place
        .subject
        .store
        .list(&blob("docs", "x").container, &query)
        .await
        .unwrap()
        .expect("the container");
    assert_eq!(
        listed
            .items
            .iter()
            .map(|item| item.name.as_str())
            .collect::<Vec<_>>(),
        ["real"]
    );
    assert_eq!(
        place
            .subject
            .store
            .list(&blob("outer", "x").container, &query)
            .await
            .unwrap(),
        None
    );
    let containers = place.subject.store.containers(&query).await.unwrap();
    assert_eq!(
        containers
            .items
            .iter()
            .map(|item| item.name.as_str())
            .collect::<Vec<_>>(),
        ["docs"]
    );
}

#[tokio::test]
async fn the_target_of_a_link_is_not_written_or_removed() {
    let place = Place::new().await;
    let before = place.outside();
    for (container, name) in LEADS_OUT
        .into_iter()
        .chain([("docs", "dir/new"), ("outer", "new/deep")])
    {
        let blob = blob(container, name);
        for bytes in [pattern(1), pattern(LONG)] {
            let refused = kind(place.subject.store.put(&blob, put(bytes)).await);
            assert_eq!(refused, StoreErrorKind::Unsupported, "{container}/{name}");
        }
        let refused = kind(place.subject.store.delete(&blob, Delete::default()).await);
        assert!(
            matches!(
                refused,
                StoreErrorKind::NotFound | StoreErrorKind::ContainerNotFound
            ),
            "{refused:?}"
        );
    }
    for container in ["docs", "outer"] {
        let _ = place
            .subject
            .store
            .delete_container(&blob(container, "x").container, Delete::default())
            .await;
    }
    assert_eq!(place.outside(), before);
    assert!(!place.root.path().join("store/docs/real").exists());
}

/// Removed objects were checked earlier by the caller; the folder may have been replaced with a link since.
#[tokio::test]
async fn the_store_itself_removes_nothing_through_a_link() {
    let place = Place::new().await;
    let objects = objects(&place.root.path().join("store"));
    let before = place.outside();
    for (container, name) in LEADS_OUT {
        let location = Path::from(format!("{container}/{name}"));
        let refused = objects
            .delete(&location)
            .await
            .expect_err("there is no such object");
        assert!(
            matches!(refused, object_store::Error::NotFound { .. }),
            "{location}: {refused}"
        );
    }
    assert_eq!(place.outside(), before);
    assert!(place.root.path().join("store/docs/real").exists());
    assert!(place.root.path().join("store/docs/link").is_symlink());
}

/// The folder becomes a link while the body is being uploaded.
#[tokio::test]
async fn an_upload_does_not_follow_a_link_created_meanwhile() {
    let place = Place::new().await;
    let (inside, aside) = (
        place.root.path().join("store/new"),
        place.root.path().join("store/aside"),
    );
    let outside = place.root.path().join("outside");
    let chunk = pattern(LONG);
    let frames = futures_util::stream::iter(0..3).then(move |at| {
        let (inside, aside, outside, chunk) = (
            inside.clone(),
            aside.clone(),
            outside.clone(),
            chunk.clone(),
        );
        async move {
            if at == 2 {
                fs::rename(&inside, aside).unwrap();
                symlink(outside, &inside).unwrap();
            }
            Ok::<_, ifmatch_blob::store::BoxError>(http_body::Frame::data(chunk))
        }
    });
    // Moving the staged file into place through the link would move this one, which makes the upload succeed.
    fs::write(place.root.path().join("outside/b#1"), "theirs").unwrap();
    let body = Upload::new(http_body_util::StreamBody::new(frames));
    place
        .subject
        .store
        .put(&blob("new", "b"), Put { body, ..put("") })
        .await
        .unwrap_err();
    assert!(!place.root.path().join("outside/b").exists());
}
