//! Single requests: the rows of `s3-requests.txt`, and each operation that Amazon has.

use http::Request;

use crate::http::Http;
use crate::s3::bucket;
use crate::site::Site;
use crate::suite::{Suite, borrowed, fields, rows};

pub(crate) fn add(suite: &mut Suite) {
    for row in rows(include_str!("../../data/blackbox/s3-requests.txt")) {
        let [request, headers, content, status, text] = row.try_into().expect("five columns");
        suite.case(
            format!("s3: {request} {headers:.90} {content:.45}"),
            move |site| {
                check(
                    site,
                    &request,
                    &headers,
                    &content,
                    status.parse().expect("a status"),
                    &text,
                );
            },
        );
    }
    let served = rows(include_str!("../../data/blackbox/s3-served.txt"));
    let operations = rows(include_str!("../../data/blackbox/s3-operations.txt"));
    for [name, ..] in served
        .iter()
        .map(|row| <[String; 3]>::try_from(row.clone()).expect("three columns"))
    {
        assert!(
            operations.iter().any(|row| row[3] == name),
            "no such operation: {name}"
        );
    }
    for row in operations {
        let served = served.iter().find(|served| served[0] == row[3]).cloned();
        suite.case(
            format!("s3: the operation {}", row[3]),
            move |site| match &served {
                Some(served) => operation(
                    site,
                    &row,
                    "",
                    served[1].parse().expect("a status"),
                    &served[2],
                ),
                // The library for S3 takes a request with a name that it doesn't know for the plain operation.
                None => {
                    for after in ["", "=", "=1"] {
                        operation(site, &row, after, 501, "-");
                    }
                }
            },
        );
    }
    suite.case(
        "s3: a name that may be an operation tomorrow, percent-encoded",
        encoded,
    );
}

fn check(site: &Site, request: &str, headers: &str, content: &str, status: u16, text: &str) {
    let mut http = site.s3();
    let (own, tag) = bucket(&mut http, site);
    let meaning = |text: &str| {
        let text = text
            .replace("{tag}", &tag)
            .replace("{bare}", tag.trim_matches('"'));
        text.replace("/box", &own)
            .replace("{account}", site.signer.account())
    };
    let (method, target) = request.split_once(' ').expect("a method and a target");
    let target = meaning(target).replace("/new", &format!("/{}", site.name()));
    let content = if content == "-" {
        String::new()
    } else {
        meaning(content)
    };
    let fields = fields(&meaning(headers));
    let reply = http
        .send(method, &target, &borrowed(&fields), &content)
        .is(status);
    if text != "-" && !reply.text().contains(text) {
        reply.fail(text);
    }
    if status >= 300 || reply.text().contains("<Error>") {
        unchanged(&mut http, &own, &tag);
    } else if method == "PUT" {
        assert_eq!(http.get(&target).is(200).text(), content);
    } else if method == "DELETE" {
        http.get(&target).refused(404, "NoSuchKey");
    }
}

/// Checks that the bucket has the object `there`, as it was, and no other.
#[track_caller]
fn unchanged(http: &mut Http<'_>, own: &str, tag: &str) {
    let read = http.get(&format!("{own}/there")).is(200);
    assert_eq!(
        (read.etag(), read.text()),
        (tag, "one"),
        "nothing was changed"
    );
    assert_eq!(
        http.get(&format!("{own}?list-type=2")).is(200).all("Key"),
        ["there"]
    );
}

/// Sends the request of a row of `s3-operations.txt`, with this text after the names that select the operation.
fn operation(site: &Site, row: &[String], after: &str, status: u16, text: &str) {
    let mut http = site.s3();
    let (own, tag) = bucket(&mut http, site);
    let (method, uri) = row[0].split_once(' ').expect("a method and a path");
    let (path, selectors) = uri.split_once('?').unwrap_or((uri, ""));
    let words = |separator: char, text: &str| -> Vec<String> {
        text.split(separator)
            .filter(|word| !matches!(*word, "-" | ""))
            .map(str::to_owned)
            .collect()
    };
    // A few names have a value of their own.
    let selectors = words('&', selectors).into_iter();
    let selectors = selectors.map(|name| {
        if name.contains('=') {
            name
        } else {
            format!("{name}{after}")
        }
    });
    let parameters = words(' ', &row[1])
        .into_iter()
        .map(|name| format!("{name}=1"));
    let mut query: Vec<String> = selectors.chain(parameters).collect();
    query.sort_by_key(|part| part.split('=').next().map(str::to_owned));
    let source = format!("{own}/there");
    let headers: Vec<(String, String)> = words(' ', &row[2])
        .into_iter()
        .map(|name| {
            let value = match name.as_str() {
                "x-amz-copy-source" | "x-amz-rename-source" => source.clone(),
                "x-amz-object-attributes" => "ETag".to_owned(),
                "x-amz-request-route" | "x-amz-request-token" => "a".to_owned(),
                _ => panic!("a value for {name}"),
            };
            (name, value)
        })
        .collect();
    let path = path.replace("/{Bucket}", &own).replace("{Key+}", "there");
    let content = if matches!(method, "PUT" | "POST") {
        "note"
    } else {
        ""
    };
    let reply = http
        .send(
            method,
            &format!("{path}?{}", query.join("&")),
            &borrowed(&headers),
            content,
        )
        .is(status);
    if text != "-" && !reply.text().contains(text) {
        reply.fail(text);
    }
    match row[3].as_str() {
        "PutObject" => assert_eq!(http.get(&source).is(200).text(), content),
        "DeleteObject" => drop(http.get(&source).is(404)),
        _ => unchanged(&mut http, &own, &tag),
    }
}

/// The signature is one of the decoded names.
fn encoded(site: &Site) {
    let mut http = site.s3();
    let (own, tag) = bucket(&mut http, site);
    let (mut head, body) = http
        .request("DELETE", &format!("{own}/there?tomorrow="), &[], b"")
        .into_parts();
    head.uri = format!("{own}/there?%74omorrow=")
        .parse()
        .expect("a target");
    http.exchange(&Request::from_parts(head, body))
        .refused(501, "NotImplemented");
    unchanged(&mut http, &own, &tag);
}
