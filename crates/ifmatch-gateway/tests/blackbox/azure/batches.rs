//! Batches of deletions and changes of tier.

use crate::azure::{A, acquire, container};
use crate::http::{Http, Reply};
use crate::races::{RACERS, race};
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case(
        "azure batch: each part has its own answer, conditions and lease",
        mixed,
    );
    suite.case(
        "azure batch: a part with a wrong signature changes nothing",
        wrong_signature,
    );
    suite.case(
        "azure batch: only blobs of the container, and only deletions and tiers",
        limited,
    );
    suite.case("azure batch: malformed", malformed);
    suite.case("azure batch: 256 parts, and no more", many);
    for round in 0..3 {
        suite.case(
            format!("race: twenty delete one version in a batch, round {round}"),
            race_to_delete,
        );
    }
}

/// Returns a part with a signed request.
fn part(http: &Http<'_>, method: &str, path: &str, fields: &[(&str, &str)]) -> String {
    let request = http.request(method, path, fields, b"");
    let mut text = format!(
        "Content-Type: application/http\r\n\r\n{method} {} HTTP/1.1\r\n",
        request.uri()
    );
    for (name, value) in request.headers() {
        text += &[name.as_str(), ": ", value.to_str().expect("ASCII"), "\r\n"].concat();
    }
    text
}

fn send(http: &mut Http<'_>, target: &str, parts: &[String]) -> Reply {
    let body: Vec<String> = parts
        .iter()
        .map(|part| format!("--batch_1\r\n{part}\r\n"))
        .collect();
    let fields = [("content-type", "multipart/mixed; boundary=batch_1")];
    http.send(
        "POST",
        target,
        &fields,
        format!("{}--batch_1--\r\n", body.concat()),
    )
}

/// Returns the status and error code of each part.
fn answers(reply: &Reply) -> Vec<(u16, String)> {
    let media_type = reply.header("content-type");
    let boundary = media_type
        .strip_prefix("multipart/mixed; boundary=")
        .expect("a boundary");
    let parts: Vec<&str> = reply.text().split(&format!("--{boundary}")).collect();
    assert_eq!((parts.first(), parts.last()), (Some(&""), Some(&"--")));
    let answer = |part: &&str| {
        let status = part.split_once("HTTP/1.1 ").expect("a status line").1[..3]
            .parse()
            .expect("a status");
        let code = part
            .split_once("x-ms-error-code: ")
            .and_then(|(_, rest)| rest.split_once('\r'));
        (
            status,
            code.map_or(String::new(), |(code, _)| code.to_owned()),
        )
    };
    parts[1..parts.len() - 1].iter().map(answer).collect()
}

fn of_container(own: &str) -> String {
    format!("{own}?restype=container&comp=batch")
}

fn mixed(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let paths: Vec<String> = ["a", "b%20c", "leased", "free", "kept"]
        .map(|name| format!("{own}/{name}"))
        .into();
    let tags: Vec<String> = paths
        .iter()
        .map(|path| http.upload(path, &[], "x").is(201).etag().to_owned())
        .collect();
    acquire(&mut http, &paths[2], A, -1).is(201);
    let absent = format!("{own}/absent");
    let parts = [
        part(&http, "DELETE", &paths[0], &[("if-match", &tags[0])]),
        part(
            &http,
            "DELETE",
            &paths[1],
            &[("x-ms-delete-snapshots", "include")],
        ),
        part(&http, "DELETE", &absent, &[]),
        part(&http, "DELETE", &paths[2], &[]),
        part(&http, "DELETE", &paths[3], &[("if-match", "\"stale\"")]),
        part(
            &http,
            "PUT",
            &format!("{}?comp=tier", paths[4]),
            &[("x-ms-access-tier", "Hot")],
        ),
    ];
    let expected = [
        (202, ""),
        (202, ""),
        (404, "BlobNotFound"),
        (412, "LeaseIdMissing"),
        (412, "ConditionNotMet"),
        (200, ""),
    ];
    let reply = send(&mut http, "?comp=batch", &parts).is(202);
    assert_eq!(
        answers(&reply),
        expected.map(|(status, code)| (status, code.to_owned()))
    );
    for (path, status) in paths.iter().zip([404, 404, 200, 200, 200]) {
        http.head(path).is(status);
    }
    let leased = part(&http, "DELETE", &paths[2], &[("x-ms-lease-id", A)]);
    assert_eq!(
        answers(&send(&mut http, &of_container(&own), &[leased]).is(202)),
        [(202, String::new())]
    );
}

fn wrong_signature(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let paths = ["a", "b", "c"].map(|name| format!("{own}/{name}"));
    for path in &paths {
        http.upload(path, &[], "x").is(201);
    }
    let parts = [
        part(&http, "DELETE", &paths[0], &[]).replace("/a HTTP/1.1", "/b HTTP/1.1"),
        format!(
            "Content-Type: application/http\r\n\r\nDELETE /devstoreaccount1{} HTTP/1.1\r\n",
            paths[0]
        ),
        part(&http, "DELETE", &paths[2], &[]),
    ];
    let reply = send(&mut http, &of_container(&own), &parts).is(202);
    let expected = [
        (403, "AuthenticationFailed"),
        (401, "NoAuthenticationInformation"),
        (202, ""),
    ];
    assert_eq!(
        answers(&reply),
        expected.map(|(status, code)| (status, code.to_owned()))
    );
    for (path, status) in paths.iter().zip([200, 200, 404]) {
        http.head(path).is(status);
    }
}

fn limited(site: &Site) {
    let mut http = site.azure();
    let (own, other) = (container(&mut http, site), container(&mut http, site));
    let path = format!("{other}/a");
    http.upload(&path, &[], "x").is(201);
    let parts = [
        part(&http, "DELETE", &path, &[]),
        part(&http, "GET", &format!("{own}/a"), &[]),
        part(
            &http,
            "PUT",
            &format!("{own}/a"),
            &[("x-ms-blob-type", "BlockBlob")],
        ),
        part(&http, "DELETE", &format!("{own}?restype=container"), &[]),
    ];
    let reply = send(&mut http, &of_container(&own), &parts).is(202);
    assert_eq!(answers(&reply), vec![(400, "InvalidInput".to_owned()); 4]);
    http.head(&path).is(200);
    http.head(&format!("{own}?restype=container")).is(200);
}

fn malformed(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let path = format!("{own}/a");
    http.upload(&path, &[], "x").is(201);
    let part = part(&http, "DELETE", &path, &[]);
    let target = of_container(&own);
    let mixed = [("content-type", "multipart/mixed; boundary=batch_1")];
    http.send("POST", &target, &mixed, format!("--batch_1\r\n{part}\r\n"))
        .refused(400, "InvalidInput");
    http.send("POST", &target, &mixed, "")
        .refused(400, "InvalidInput");
    let body = format!("--batch_1\r\n{part}\r\n--batch_1--\r\n");
    http.send("POST", &target, &[("content-type", "text/plain")], &body)
        .refused(400, "InvalidHeaderValue");
    // Around the number of fields beyond which `http::HeaderMap` panics.
    for count in 24_565..24_578 {
        let names = (0..count).fold(String::new(), |names, name| {
            names + &format!("h{name}:\r\n")
        });
        let reply = http.send(
            "POST",
            &target,
            &mixed,
            format!("--batch_1\r\n{part}{names}\r\n--batch_1--\r\n"),
        );
        let status = reply.status.as_u16();
        assert!(
            matches!(status, 202 | 400),
            "{count} fields: {status} {}",
            reply.text()
        );
        http.upload(&path, &[], "x").is(201);
    }
}

fn many(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let parts: Vec<String> = (0..257)
        .map(|number| part(&http, "DELETE", &format!("{own}/{number}"), &[]))
        .collect();
    send(&mut http, &of_container(&own), &parts).refused(400, "ExceedsMaxBatchRequestCount");
    let reply = send(&mut http, &of_container(&own), &parts[1..]).is(202);
    // The Worker limits the requests to its store for one request: parts beyond that get 503 each.
    let answers = answers(&reply);
    assert_eq!((answers.len(), answers[0].0), (256, 404));
    assert!(
        answers
            .iter()
            .all(|(status, _)| matches!(status, 404 | 503)),
        "{answers:?}"
    );
}

fn race_to_delete(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let path = format!("{own}/a");
    let tag = http.upload(&path, &[], "x").is(201).etag().to_owned();
    let replies = race(RACERS, |_| {
        let mut http = site.azure();
        let part = part(&http, "DELETE", &path, &[("if-match", &tag)]);
        send(&mut http, &of_container(&own), &[part])
    });
    let won = replies
        .iter()
        .filter(|reply| answers(reply)[0].0 == 202)
        .count();
    assert_eq!(
        won,
        1,
        "{:?}",
        replies.iter().map(answers).collect::<Vec<_>>()
    );
    http.head(&path).is(404);
}
