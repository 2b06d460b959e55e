//! Listings: complete, ordered, in pages.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;

use crate::support::{Fixture, fixture, request};

async fn names(fixture: &Fixture, container: &str, prefix: &str, limit: usize) -> Vec<String> {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut names = Vec::new();
    let mut after = String::new();
    loop {
        let query = format!(
            "/{container}?prefix={}&limit={limit}{after}",
            encode(prefix)
        );
        let page = fixture.get(&query).await;
        assert_eq!(page.status, StatusCode::OK);
        let page = page.json();
        let blobs = page["blobs"].as_array().expect("blobs");
        assert!(blobs.len() <= limit);
        names.extend(
            blobs
                .iter()
                .map(|blob| blob["name"].as_str().expect("a name").to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => {
                assert_eq!(blobs.len(), limit, "a page that is not the last is full");
                after = format!("&after={}", encode(next));
            }
            None => return names,
        }
    }
}

#[tokio::test]
async fn deleted_blobs_leave_no_gaps_in_pages() {
    let fixture = fixture().await;
    for at in 0..40 {
        fixture.put(&format!("/c/{at:02}"), "x").await;
    }
    for at in (0..40).filter(|at| at % 4 != 0) {
        fixture
            .send(request(Method::DELETE, &format!("/c/{at:02}"), &[], ""))
            .await;
    }
    let expected: Vec<String> = (0..40).step_by(4).map(|at| format!("{at:02}")).collect();
    for limit in 1..=11 {
        assert_eq!(
            names(&fixture, "c", "", limit).await,
            expected,
            "pages of {limit}"
        );
    }
}

#[tokio::test]
async fn a_delimiter_groups_names_into_folders() {
    let fixture = fixture().await;
    for name in ["a", "b/1", "b/2", "b/c/3", "d"] {
        fixture.put(&format!("/c/{name}"), "x").await;
    }
    for (query, names, folders) in [
        ("delimiter=/", vec!["a", "d"], vec!["b/"]),
        ("delimiter=/&prefix=b/", vec!["b/1", "b/2"], vec!["b/c/"]),
        ("delimiter=/&limit=2", vec!["a"], vec!["b/"]),
    ] {
        let page = fixture.get(&format!("/c?{query}")).await.json();
        let found: Vec<_> = page["blobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|blob| blob["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            (found, &page["folders"]),
            (names, &serde_json::json!(folders)),
            "{query}: {page}"
        );
    }
    let first = fixture.get("/c?delimiter=/&limit=2").await.json();
    let after = utf8_percent_encode(first["next"].as_str().unwrap(), NON_ALPHANUMERIC).to_string();
    let second = fixture
        .get(&format!("/c?delimiter=/&limit=2&after={after}"))
        .await
        .json();
    assert_eq!(
        (&second["blobs"][0]["name"], &second["folders"]),
        (&"d".into(), &serde_json::json!([])),
        "{second}"
    );
}

/// Checks the blobs of a container, next to one with the same prefix.
async fn check_pages(stored: &BTreeSet<String>, prefix: &str, limit: usize) {
    let fixture = fixture().await;
    for name in stored {
        for container in ["c", "c-2"] {
            let container = ContainerName::new(container).expect("valid");
            let path = BlobPath {
                container,
                name: BlobName::new(name).expect("valid"),
            };
            assert_eq!(
                fixture.put(&path.to_string(), "x").await.status,
                StatusCode::CREATED
            );
        }
    }
    fixture.put("/c/other", "x").await;
    let mut expected: Vec<String> = stored.iter().cloned().chain(["other".to_owned()]).collect();
    expected.retain(|name| name.starts_with(prefix));
    expected.sort();
    expected.dedup();
    assert_eq!(names(&fixture, "c", prefix, limit).await, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_pages_contain_all_names_in_order(
        stored in prop::collection::btree_set("[ab/ü+ .%]{1,6}", 0..30),
        prefix in "[ab/ü]{0,2}",
        limit in 1_usize..8,
    ) {
        let stored = stored.into_iter().filter(|name| BlobName::new(name).is_ok()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(check_pages(&stored, &prefix, limit));
    }
}
