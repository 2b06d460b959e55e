//! Listings: in order, in pages, in folders.

use crate::support::{Answer, Client, fixture};

const LIST: &str = "/box?restype=container&comp=list";

async fn fill(client: &Client, names: &[&str]) {
    for name in names {
        client.upload(&format!("/box/{name}"), "x", &[]).await.is(201);
    }
}

/// All pages of a listing, each with at most so many items.
async fn pages(client: &Client, target: &str, size: usize) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut marker = String::new();
    loop {
        let target = format!("{target}&maxresults={size}&marker={}", marker.replace('=', "%3D"));
        let page = client.get(&target).await.is(200);
        pages.push(names(&page));
        assert!(pages.len() < 100, "the listing does not end");
        match page.all("NextMarker")[..] {
            [""] => return pages,
            [next] => next.clone_into(&mut marker),
            _ => panic!("{page:?}"),
        }
    }
}

fn names(page: &Answer) -> Vec<String> {
    page.all("Name").into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn blobs_are_listed_with_their_properties() {
    let client = fixture().await.client;
    let fields =
        [("x-ms-blob-content-type", "text/plain"), ("x-ms-meta-owner", "me"), ("x-ms-blob-cache-control", "a\"<&>")];
    let tag = client.upload("/box/%3Ca%26b%3E", "hello", &fields).await.is(201).tag();
    let listing = client.get(LIST).await.is(200);
    assert_eq!(listing.field("content-type"), "application/xml");
    assert_eq!(listing.all("Name"), ["&lt;a&amp;b&gt;"]);
    let expected = [
        ("Etag", tag.trim_matches('"')),
        ("Last-Modified", "Sun, 13 Sep 2020 12:26:41 GMT"),
        ("Content-Length", "5"),
        ("Content-Type", "text/plain"),
        ("Content-Encoding", ""),
        ("Cache-Control", "a\"&lt;&amp;&gt;"),
        ("BlobType", "BlockBlob"),
        ("LeaseStatus", "unlocked"),
        ("LeaseState", "available"),
    ];
    for (name, value) in expected {
        assert_eq!(listing.all(name), [value], "{name}");
    }
    assert!(listing.all("LeaseDuration").is_empty() && listing.all("Metadata").is_empty());
    client.lease("/box/%3Ca%26b%3E", "acquire", &[("x-ms-lease-duration", "-1")]).await.is(201);
    let listing = client.get(&format!("{LIST}&include=metadata")).await.is(200);
    assert_eq!(listing.all("owner"), ["me"]);
    let lease = [listing.all("LeaseStatus"), listing.all("LeaseState"), listing.all("LeaseDuration")];
    assert_eq!(lease, [["locked"], ["leased"], ["infinite"]]);
    client.get(&format!("{LIST}&include=others")).await.refused(400, "InvalidQueryParameterValue");
}

#[tokio::test]
async fn pages_hold_everything_once() {
    let client = fixture().await.client;
    let all = ["a", "a/b", "b", "c/d/e", "ccc", "z", "%C3%BC"];
    fill(&client, &all).await;
    let sorted = ["a", "a/b", "b", "c/d/e", "ccc", "z", "ü"];
    for size in 1..9 {
        let pages = pages(&client, LIST, size).await;
        assert!(pages.iter().all(|page| page.len() <= size));
        assert_eq!(pages.concat(), sorted, "in pages of {size}");
    }
    assert_eq!(pages(&client, &format!("{LIST}&prefix=c"), 1).await.concat(), ["c/d/e", "ccc"]);
    assert_eq!(pages(&client, &format!("{LIST}&prefix=none"), 1).await.concat(), [""; 0]);
    client.get(&format!("{LIST}&marker=no%20marker")).await.refused(400, "InvalidQueryParameterValue");
}

#[tokio::test]
async fn folders_are_listed_as_one_entry() {
    let client = fixture().await.client;
    fill(&client, &["a", "a/1", "a/2", "a/b/3", "a/b/4", "a0", "b/1", "c"]).await;
    let folders = format!("{LIST}&delimiter=%2F");
    let listing = client.get(&folders).await.is(200);
    assert_eq!(listing.all("Name"), ["a", "a/", "a0", "b/", "c"]);
    assert_eq!(listing.all("BlobPrefix"), ["<Name>a/</Name>", "<Name>b/</Name>"]);
    assert_eq!(client.get(&format!("{folders}&prefix=a%2F")).await.all("Name"), ["a/1", "a/2", "a/b/"]);
    assert_eq!(client.get(&format!("{folders}&prefix=a")).await.all("Name"), ["a", "a/", "a0"]);
    for size in 1..7 {
        assert_eq!(pages(&client, &folders, size).await.concat(), ["a", "a/", "a0", "b/", "c"], "in pages of {size}");
    }
    let other = client.get(&format!("{LIST}&delimiter=%2Fb")).await.is(200);
    assert_eq!(other.all("Name"), ["a", "a/1", "a/2", "a/b", "a0", "b/1", "c"]);
}

#[tokio::test]
async fn containers_are_listed_in_pages() {
    let client = fixture().await.client;
    for name in ["aaa", "bbb", "ccc"] {
        client.put(&format!("/{name}?restype=container"), &[("x-ms-meta-of", name)], "").await.is(201);
    }
    // The plain dialect has names that Azure does not have.
    let plain = http::Request::put("/Plain_Only/a").body(http_body_util::Full::from("x")).expect("a request");
    tower::ServiceExt::oneshot(client.service.clone(), plain).await.expect("infallible");
    for size in 1..5 {
        assert_eq!(
            pages(&client, "?comp=list", size).await.concat(),
            ["aaa", "bbb", "box", "ccc"],
            "in pages of {size}"
        );
    }
    let listing = client.get("?comp=list&prefix=b&include=metadata").await.is(200);
    assert_eq!((listing.all("Name"), listing.all("of")), (vec!["bbb", "box"], vec!["bbb"]));
    assert_eq!(client.get("?comp=list").await.all("LeaseState").len(), 4);
}

/// The last character that there is, behind which no other name of a folder can be.
#[tokio::test]
async fn a_folder_is_one_entry_whatever_its_names_begin_with() {
    let client = fixture().await.client;
    let last = ["a/LAST", "a/LASTx", "a/LASTLAST/y", "c/LASTz"].map(|name| name.replace("LAST", "%F4%8F%BF%BF"));
    fill(&client, &["a/1", &last[0], &last[1], &last[2], "b", &last[3], "d"]).await;
    let folders = format!("{LIST}&delimiter=%2F");
    assert_eq!(client.get(&folders).await.is(200).all("Name"), ["a/", "b", "c/", "d"]);
    for size in 1..6 {
        assert_eq!(pages(&client, &folders, size).await.concat(), ["a/", "b", "c/", "d"], "in pages of {size}");
    }
}

/// XML has no way to write most control characters: a document with one of them can be read by nobody.
#[tokio::test]
async fn what_a_request_says_never_makes_a_document_that_is_no_xml() {
    let client = fixture().await.client;
    let targets = ["&prefix=%01", "&delimiter=%1F", "&%02=x", "&include=%03", "&prefix=%EF%BF%BF", "&marker=AQ%3D%3D"];
    for target in targets {
        let answer = client.get(&format!("{LIST}{target}")).await;
        let has = |char: char| char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}');
        assert!(!answer.text().contains(has), "{target}: {answer:?}");
    }
}
