//! Paths that name a blob, and errors for the others.

use proptest::prelude::*;

use super::{BlobName, BlobPath, ContainerName, NameErrorKind as Kind, is_server_path};

fn kind_of(path: &str) -> Kind {
    BlobPath::parse(path).expect_err(path).kind()
}

#[test]
fn invalid_names_are_refused_with_a_reason() {
    for (path, kind) in [
        ("/c", Kind::Segment),
        ("/c/", Kind::Segment),
        ("/c/../b", Kind::Segment),
        ("/c/%2e%2E/b", Kind::Segment),
        ("/c/.", Kind::Segment),
        ("/c/a%00b", Kind::Character),
        ("/c/a%0Ab", Kind::Character),
        ("/c/a%C2%85b", Kind::Character),
        ("/c/a%2fb", Kind::EncodedSlash),
        ("/c/a%2Fb", Kind::EncodedSlash),
        ("/c/a%", Kind::Escape),
        ("/c/a%4", Kind::Escape),
        ("/c/a%zz", Kind::Escape),
        ("/c/%ff", Kind::Utf8),
        ("/c/%C3%28", Kind::Utf8),
        ("/-/health", Kind::Container),
        ("/.c/b", Kind::Container),
        ("/ü/b", Kind::Container),
        ("//b", Kind::Container),
    ] {
        assert_eq!(kind_of(path), kind, "{path}");
    }
    assert_eq!(kind_of(&format!("/{}/b", "c".repeat(89))), Kind::ContainerTooLong);
    assert_eq!(kind_of(&format!("/c/{}", "b".repeat(1025))), Kind::BlobTooLong);
    assert_eq!(kind_of(&format!("/c/{}", "%F0%9F%98%80".repeat(486))), Kind::BlobTooLong);
    assert_eq!(kind_of(&format!("/c/{}", "b".repeat(10_240))), Kind::BlobTooLong);
}

#[test]
fn a_path_is_decoded_once() {
    assert_eq!(BlobPath::parse("/c/a%252fb").expect("valid").name.as_str(), "a%2fb");
    assert_eq!(BlobPath::parse("/c/a+b").expect("valid").name.as_str(), "a+b");
    assert_eq!(BlobPath::parse("/c/...").expect("valid").name.as_str(), "...");
}

#[test]
fn names_that_differ_in_a_slash_differ() {
    for text in ["a//b", "a/", "a", "a/b", "/a", "//", "a\\b", "a."] {
        let path =
            BlobPath { container: ContainerName::new("c").expect("valid"), name: BlobName::new(text).expect(text) };
        assert_eq!((path.name.as_str(), BlobPath::parse(&path.to_string())), (text, Ok(path.clone())));
    }
}

#[test]
fn the_longest_names_are_valid() {
    assert!(ContainerName::new(&"c".repeat(88)).is_ok());
    assert!(BlobName::new(&"b".repeat(1024)).is_ok());
    assert!(BlobName::new(&"ü".repeat(970)).is_ok());
    assert!(BlobName::new(&"😀".repeat(485)).is_ok());
    assert_eq!(BlobName::new(&"😀".repeat(486)).expect_err("too long").kind(), Kind::BlobTooLong);
}

#[test]
fn internal_names_cannot_be_parsed() {
    let name = ContainerName::internal("blocks").expect("valid");
    assert_eq!((name.as_str(), name.is_internal()), ("-blocks", true));
    assert_eq!(ContainerName::new(name.as_str()).expect_err("refused").kind(), Kind::Container);
    assert!(!ContainerName::new("blocks").expect("valid").is_internal());
    for (text, kind) in [("", Kind::Container), ("a/b", Kind::Container), ("ü", Kind::Container)] {
        assert_eq!(ContainerName::internal(text).expect_err(text).kind(), kind);
    }
    assert_eq!(ContainerName::internal(&"c".repeat(88)).expect_err("too long").kind(), Kind::ContainerTooLong);
}

proptest! {
    #[test]
    fn a_name_survives_its_address(name in "\\PC{1,40}") {
        if let Ok(name) = BlobName::new(&name) {
            let path = BlobPath { container: ContainerName::new("c").expect("valid"), name };
            prop_assert_eq!(BlobPath::parse(&path.to_string()), Ok(path));
        }
    }

    #[test]
    fn no_path_makes_the_parser_panic(path in "(/|%|[0-9a-fA-F]|\\PC){0,60}") {
        let _ = BlobPath::parse(&path);
    }
}

#[test]
fn only_the_segment_of_a_single_hyphen_belongs_to_the_server() {
    for (path, expected) in
        [("/-", true), ("/-/", true), ("/-/x/y", true), ("/", false), ("/-x/y", false), ("/a/-/b", false), ("*", false)]
    {
        assert_eq!(is_server_path(path), expected, "{path}");
    }
}
