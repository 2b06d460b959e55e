//! Shared access signatures: they grant what is signed, and nothing more.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use ifmatch_blob::dialect::Peer;
use ifmatch_core::shared_key::Key;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::support::{Answer, Client, KEY, fixture, send};

const ROWS: &str = include_str!("data/permissions.txt");
/// All letters that are permissions anywhere.
const LETTERS: &str = "racwdxyltfmeopui";
const START: &str = "2020-09-13";
const END: &str = "2100-01-01T00:00:00Z";

/// A query to sign: names and values in any order.
#[derive(Clone)]
pub(crate) struct Token(Vec<(&'static str, String)>);

impl Token {
    pub(crate) fn service(kind: &str, permissions: &str) -> Self {
        Self::of(&[
            ("sv", "2021-12-02"),
            ("sr", kind),
            ("sp", permissions),
            ("st", START),
            ("se", END),
        ])
    }

    pub(crate) fn account(services: &str, levels: &str, permissions: &str) -> Self {
        let own = [
            ("sv", "2021-12-02"),
            ("ss", services),
            ("srt", levels),
            ("sp", permissions),
            ("se", END),
        ];
        Self::of(&own)
    }

    fn of(pairs: &[(&'static str, &str)]) -> Self {
        Self(
            pairs
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect(),
        )
    }

    /// Replaces a value. An empty one removes it.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.0.retain(|(other, _)| *other != name);
        if !value.is_empty() {
            self.0.push((name, value.to_owned()));
        }
        self
    }

    pub(crate) fn value(&self, name: &str) -> &str {
        self.0
            .iter()
            .find(|(other, _)| *other == name)
            .map_or("", |(_, value)| value)
    }

    /// Signs the text of the reference, written here a second time on purpose.
    pub(crate) fn sign(&self, resource: &str) -> String {
        let get = |name| self.value(name);
        let has_scope = get("sv") >= "2020-12-06";
        let mut lines = if get("ss").is_empty() {
            let mut lines = vec![
                get("sp"),
                get("st"),
                get("se"),
                resource,
                get("si"),
                get("sip"),
                get("spr"),
                get("sv"),
            ];
            lines.extend([get("sr"), ""]);
            lines.extend(has_scope.then_some(""));
            lines.extend(["rscc", "rscd", "rsce", "rscl", "rsct"].map(get));
            lines
        } else {
            let mut lines = vec![
                "photos",
                get("sp"),
                get("ss"),
                get("srt"),
                get("st"),
                get("se"),
                get("sip"),
            ];
            lines.extend([get("spr"), get("sv")]);
            lines.extend(has_scope.then_some(""));
            lines
        };
        if !get("ss").is_empty() {
            lines.push("");
        }
        let key = Key::from_base64(&STANDARD.encode(KEY)).expect("a key");
        let pairs = self
            .0
            .iter()
            .map(|(name, value)| format!("{name}={}", escape(value)))
            .collect::<Vec<_>>()
            .join("&");
        format!("{pairs}&sig={}", escape(&key.sign(&lines.join("\n"))))
    }
}

fn escape(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

const PEER: Peer = Peer {
    address: std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)),
    is_secure: false,
};

/// Sends a request without `Authorization`.
pub(crate) async fn ask(
    client: &Client,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    query: &str,
    peer: Option<Peer>,
) -> Answer {
    let cut = if target.contains('?') { '&' } else { '?' };
    let uri = format!("/photos{target}{cut}{query}");
    let mut request = Request::builder()
        .method(method.parse::<Method>().expect("a method"))
        .uri(uri);
    let length = fields
        .iter()
        .find(|(name, _)| *name == "content-length")
        .map_or(0, |_| 1);
    if length == 0 {
        request = request.header("content-length", "0");
    }
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    if let Some(peer) = peer {
        request = request.extension(peer);
    }
    send(
        &client.service,
        request
            .body(Full::new(Bytes::from(vec![b'x'; length])))
            .expect("a request"),
    )
    .await
}

pub(crate) async fn read(client: &Client, target: &str, query: &str) -> Answer {
    ask(client, "GET", target, &[], query, Some(PEER)).await
}

const BREAK: [(&str, &str); 2] = [
    ("x-ms-lease-action", "break"),
    ("x-ms-lease-break-period", "0"),
];

/// For every operation and every permission: with this permission alone, with all others, and with the levels or resources that the
/// operation doesn't have.
#[tokio::test]
async fn each_permission_allows_its_operations_only() {
    // A store of its own for each request would take seconds.
    let (client, mut checked) = (fixture().await.client, 0);
    let renew = async || {
        client
            .put("/box?restype=container&comp=lease", &BREAK, "")
            .await;
        client.delete("/box?restype=container", &[]).await;
        client
            .put("/box?restype=container", &[], "")
            .await
            .expect(201);
        client.upload("/box/a", "old", &[]).await.expect(201);
    };
    renew().await;
    for row in ROWS.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [level, request, fields, of_account, of_container, of_blob] = cells[..] else {
            panic!("{row}")
        };
        let (method, target) = request.split_once(' ').expect("a method and a target");
        let fields: Vec<(&str, &str)> = fields
            .split(' ')
            .filter_map(|field| field.split_once('='))
            .collect();
        let path = target.split('?').next().unwrap_or_default();
        let of_path = format!("/blob/photos{path}");
        for letter in LETTERS.chars() {
            let only = letter.to_string();
            let others: String = LETTERS.chars().filter(|other| *other != letter).collect();
            let kinds = [
                (
                    Token::account("bqtf", "sco", &only).sign(""),
                    of_account.contains(letter),
                ),
                (
                    Token::account("b", level, &only).sign(""),
                    of_account.contains(letter),
                ),
                (
                    Token::account("b", &"sco".replace(level, ""), LETTERS).sign(""),
                    false,
                ),
                (Token::account("tqf", "sco", LETTERS).sign(""), false),
                (
                    Token::service("c", &only).sign("/blob/photos/box"),
                    of_container.contains(letter),
                ),
                (
                    Token::service("b", &only).sign(&of_path),
                    of_blob.contains(letter),
                ),
                (
                    Token::service("c", &others).sign("/blob/photos/box"),
                    of_container.chars().any(|one| one != letter),
                ),
            ];
            for (at, (query, is_allowed)) in kinds.into_iter().enumerate() {
                let answer = ask(&client, method, target, &fields, &query, Some(PEER)).await;
                let by_signature = answer.status == 403;
                assert_eq!(
                    !by_signature, is_allowed,
                    "{request} {fields:?}: {letter}, kind {at}: {answer:?}"
                );
                if by_signature {
                    assert_eq!(
                        client.get("/box/a").await.expect(200).text(),
                        "old",
                        "{request}"
                    );
                } else {
                    renew().await;
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 3000, "{checked}");
}

#[tokio::test]
async fn a_signature_is_valid_for_its_resource_only() {
    let client = fixture().await.client;
    client
        .put("/other?restype=container", &[], "")
        .await
        .expect(201);
    for blob in [
        "/box/a",
        "/box/b",
        "/box/a/b",
        "/other/a",
        "/box/%C3%BC%20x",
    ] {
        client.upload(blob, "bytes", &[]).await.expect(201);
    }
    let blob = Token::service("b", "r").sign("/blob/photos/box/a");
    let container = Token::service("c", "r").sign("/blob/photos/box");
    for (target, by_blob, by_container) in [
        ("/box/a", 200, 200),
        ("/box/%61", 200, 200),
        ("/box/b", 403, 200),
        ("/box/a/b", 403, 200),
        ("/box/a%2Fb", 403, 200),
        ("/other/a", 403, 403),
        ("/other%2F..%2Fbox/a", 403, 403),
        ("/box%2Fa", 403, 403),
        ("/box/a%0A", 403, 400),
    ] {
        assert_eq!(
            read(&client, target, &blob).await.status,
            by_blob,
            "{target}"
        );
        assert_eq!(
            read(&client, target, &container).await.status,
            by_container,
            "{target}"
        );
    }
    let named = Token::service("b", "r").sign("/blob/photos/box/ü x");
    read(&client, "/box/%C3%BC%20x", &named).await.expect(200);
    // Another account's path, and the signature of another account's key.
    let mut request = Request::get(format!("/reports/box/a?{container}"));
    request = request.header("x-ms-version", "2021-12-02");
    send(
        &client.service,
        request.body(Full::default()).expect("a request"),
    )
    .await
    .refused(403, "AuthenticationFailed");
}

/// Each change to a signed parameter, and each way to write a query differently.
#[tokio::test]
async fn the_query_is_what_was_signed() {
    let client = fixture().await.client;
    client.upload("/box/a", "bytes", &[]).await.expect(201);
    let resource = "/blob/photos/box/a";
    let token = Token::service("b", "r")
        .with("spr", "https,http")
        .with("rsct", "text/plain");
    let signed = token.sign(resource);
    read(&client, "/box/a", &signed).await.expect(200);
    let reordered: Vec<&str> = signed.split('&').rev().collect();
    read(&client, "/box/a", &reordered.join("&"))
        .await
        .expect(200);
    for (name, value) in [
        ("sp", "rw"),
        ("st", "2020-01-01"),
        ("se", "2101-01-01T00:00:00Z"),
        ("sr", "c"),
        ("sv", "2018-11-09"),
        ("sv", "2022-11-02"),
        ("spr", "https"),
        ("rsct", "text/html"),
        ("rscd", "inline"),
        ("sip", "192.0.2.7"),
        ("si", "policy"),
        ("ses", "scope"),
        ("skoid", "x"),
        ("ss", "b"),
        ("tn", "tab"),
    ] {
        let query: Vec<String> = token
            .clone()
            .with(name, value)
            .sign("")
            .split('&')
            .map(ToOwned::to_owned)
            .collect();
        let signature = signed.split('&').next_back().expect("a signature");
        let query = [&query[..query.len() - 1], &[signature.to_owned()]]
            .concat()
            .join("&");
        read(&client, "/box/a", &query)
            .await
            .refused(403, "AuthenticationFailed");
    }
    for (extra, status, code) in [
        ("sp=rw", 403, "AuthenticationFailed"),
        ("SP=rw", 403, "AuthenticationFailed"),
        ("%73p=rw", 403, "AuthenticationFailed"),
        ("sig=AAAA", 403, "AuthenticationFailed"),
        (
            "snapshot=2020-09-13T12:26:40.0000000Z",
            403,
            "AuthenticationFailed",
        ),
        ("versionid=1", 400, "UnsupportedQueryParameter"),
    ] {
        for query in [format!("{signed}&{extra}"), format!("{extra}&{signed}")] {
            read(&client, "/box/a", &query).await.refused(status, code);
        }
    }
    // An account's signature doesn't cover header fields.
    let account = Token::account("b", "o", "r").sign("");
    read(&client, "/box/a", &account).await.expect(200);
    let answer = read(&client, "/box/a", &format!("{account}&rsct=text%2Fhtml"))
        .await
        .expect(200);
    assert_eq!(answer.headers["content-type"], "application/octet-stream");
    // With Authorization, the query's signature isn't looked at.
    let both = client.get(&format!("/box/a?{signed}")).await;
    both.expect(200);
}

#[tokio::test]
async fn times_addresses_and_protocols_are_limits() {
    let client = fixture().await.client;
    client.upload("/box/a", "bytes", &[]).await.expect(201);
    let secure = Peer {
        is_secure: true,
        ..PEER
    };
    let mapped = Peer {
        address: "::ffff:192.0.2.7".parse().expect("an address"),
        ..PEER
    };
    // The clock stands at 2020-09-13T12:26:40Z.
    for (name, value, peer, expected) in [
        ("st", "2020-09-13T12:26:40Z", Some(PEER), ""),
        (
            "st",
            "2020-09-13T12:26:41Z",
            Some(PEER),
            "AuthenticationFailed",
        ),
        ("st", "2020-09-13T12:26Z", Some(PEER), ""),
        ("st", "yesterday", Some(PEER), "AuthenticationFailed"),
        ("st", "", Some(PEER), ""),
        (
            "se",
            "2020-09-13T12:26:40Z",
            Some(PEER),
            "AuthenticationFailed",
        ),
        (
            "se",
            "2020-09-13T12:26:40.0000001Z",
            Some(PEER),
            "AuthenticationFailed",
        ),
        ("se", "2020-09-13T12:26:59.1Z", Some(PEER), ""),
        ("se", "2020-09-14", Some(PEER), ""),
        ("se", "2020-09-13", Some(PEER), "AuthenticationFailed"),
        (
            "se",
            "2020-09-13T13:26:40+02:00",
            Some(PEER),
            "AuthenticationFailed",
        ),
        ("se", "", Some(PEER), "AuthenticationFailed"),
        ("sp", "", Some(PEER), "AuthenticationFailed"),
        ("sv", "", Some(PEER), "AuthenticationFailed"),
        ("sv", "2018-03-28", Some(PEER), "AuthenticationFailed"),
        ("sv", "2018-11-09", Some(PEER), ""),
        ("sv", "2020-10-02", Some(PEER), ""),
        ("sv", "2020-12-06", Some(PEER), ""),
        ("sv", "2026-04-06", Some(PEER), ""),
        ("si", "policy", Some(PEER), "AuthenticationFailed"),
        ("sr", "d", Some(PEER), "AuthenticationFailed"),
        ("spr", "https", Some(PEER), "AuthorizationProtocolMismatch"),
        ("spr", "https", None, "AuthorizationProtocolMismatch"),
        ("spr", "https", Some(secure), ""),
        ("spr", "https,http", Some(PEER), ""),
        ("spr", "http", Some(PEER), "AuthenticationFailed"),
        ("sip", "192.0.2.7", Some(PEER), ""),
        ("sip", "192.0.2.7", Some(mapped), ""),
        ("sip", "192.0.2.7", None, "AuthorizationSourceIPMismatch"),
        (
            "sip",
            "192.0.2.8",
            Some(PEER),
            "AuthorizationSourceIPMismatch",
        ),
        ("sip", "192.0.2.1-192.0.2.7", Some(PEER), ""),
        (
            "sip",
            "192.0.2.8-192.0.2.9",
            Some(PEER),
            "AuthorizationSourceIPMismatch",
        ),
        (
            "sip",
            "192.0.2.9-192.0.2.1",
            Some(PEER),
            "AuthorizationSourceIPMismatch",
        ),
        (
            "sip",
            "::-ffff::",
            Some(PEER),
            "AuthorizationSourceIPMismatch",
        ),
        ("sip", "192.0.2.0/24", Some(PEER), "AuthenticationFailed"),
    ] {
        let query = Token::service("b", "r")
            .with(name, value)
            .sign("/blob/photos/box/a");
        let forwarded = [
            ("x-forwarded-for", "192.0.2.8"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=192.0.2.8"),
        ];
        let answer = ask(&client, "GET", "/box/a", &forwarded, &query, peer).await;
        assert_eq!(
            answer.code(),
            expected,
            "{name}={value} {peer:?}: {answer:?}"
        );
        assert_eq!(
            answer.status.as_u16(),
            if expected.is_empty() { 200 } else { 403 }
        );
    }
}

#[tokio::test]
async fn responses_to_reads_carry_the_signed_fields() {
    let client = fixture().await.client;
    client
        .upload(
            "/box/a",
            "bytes",
            &[("content-type", "a/b"), ("cache-control", "no-cache")],
        )
        .await
        .expect(201);
    let token = Token::service("b", "rw")
        .with("rsct", "text/plain; charset=utf-8")
        .with("rscd", "attachment; filename=x");
    let token = token
        .with("rscc", "max-age=5")
        .with("rsce", "gzip")
        .with("rscl", "de")
        .sign("/blob/photos/box/a");
    for method in ["GET", "HEAD"] {
        let answer = ask(&client, method, "/box/a", &[], &token, Some(PEER))
            .await
            .expect(200);
        for (name, value) in [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-disposition", "attachment; filename=x"),
            ("cache-control", "max-age=5"),
            ("content-encoding", "gzip"),
            ("content-language", "de"),
        ] {
            assert_eq!(answer.header(name), value);
        }
    }
    let meta = ask(
        &client,
        "PUT",
        "/box/a?comp=metadata",
        &[("x-ms-meta-a", "b")],
        &token,
        Some(PEER),
    )
    .await
    .expect(200);
    assert!(!meta.headers.contains_key("content-disposition"));
    assert_eq!(
        client
            .get("/box/a")
            .await
            .expect(200)
            .header("content-type"),
        "a/b"
    );
}

/// Otherwise a holder could find out the tags by conditions, or set them.
#[tokio::test]
async fn tags_of_other_operations_need_their_own_permission() {
    const CODE: &str = "AuthorizationPermissionMismatch";
    let client = fixture().await.client;
    let (put, copy) = (
        ("x-ms-blob-type", "BlockBlob"),
        ("x-ms-copy-source-tag-option", "COPY"),
    );
    let from = |permissions| {
        let token = Token::service("c", permissions).sign("/blob/photos/box");
        format!("http://localhost/photos/box/a?{token}")
    };
    let (source, source_without) = (from("rt"), from("r"));
    let writer = Token::service("c", "rwt").sign("/blob/photos/box");
    let copied = [
        ("host", "localhost"),
        ("x-ms-copy-source", &*source_without),
        copy,
    ];
    ask(&client, "PUT", "/box/b", &copied, &writer, Some(PEER))
        .await
        .refused(403, CODE);
    let listing = async |permissions| {
        let token = Token::service("c", permissions).sign("/blob/photos/box");
        ask(
            &client,
            "GET",
            "/box?restype=container&comp=list&include=tags",
            &[],
            &token,
            Some(PEER),
        )
        .await
    };
    listing("l").await.refused(403, CODE);
    listing("lt").await.expect(200);
    for (method, target, fields) in [
        ("PUT", "/box/a", vec![put, ("x-ms-tags", "a=1")]),
        ("PUT", "/box/a?comp=blocklist", vec![("x-ms-tags", "a=1")]),
        (
            "PUT",
            "/box/a?comp=metadata",
            vec![("x-ms-meta-a", "b"), ("x-ms-if-tags", "a = '1'")],
        ),
        ("GET", "/box/a", vec![("x-ms-if-tags", "a = '1'")]),
        (
            "PUT",
            "/box/b",
            vec![("host", "localhost"), ("x-ms-copy-source", &*source), copy],
        ),
    ] {
        let with = async |permissions| {
            let token = Token::service("c", permissions).sign("/blob/photos/box");
            ask(&client, method, target, &fields, &token, Some(PEER)).await
        };
        with("rw").await.refused(403, CODE);
        assert_ne!(with("rwt").await.code(), CODE, "{method} {target}");
        let (name, value) = *fields.last().unwrap();
        if name == "x-ms-tags" {
            let untagged: Vec<_> = fields
                .iter()
                .copied()
                .filter(|field| *field != (name, value))
                .collect();
            let token = Token::service("c", "rw").sign("/blob/photos/box");
            assert_ne!(
                ask(&client, method, target, &untagged, &token, Some(PEER))
                    .await
                    .code(),
                CODE,
                "{method} {target}"
            );
        }
    }
}

/// Two holders of a signature that permits creation race. The second must not replace the blob of the first.
#[tokio::test]
async fn the_permission_to_create_replaces_nothing() {
    let client = fixture().await.client;
    let token = Token::service("c", "c").sign("/blob/photos/box");
    let put = |fields: &'static [(&'static str, &'static str)]| {
        let all = [&[("x-ms-blob-type", "BlockBlob")][..], fields].concat();
        let (client, token) = (&client, &token);
        async move { ask(client, "PUT", "/box/new", &all, token, Some(PEER)).await }
    };
    let (one, other) = tokio::join!(put(&[]), put(&[]));
    let mut outcomes =
        [one, other].map(|answer| (answer.status.as_u16(), answer.code().to_owned()));
    outcomes.sort();
    assert_eq!(
        outcomes,
        [
            (201, String::new()),
            (403, "UnauthorizedBlobOverwrite".into())
        ]
    );
    put(&[("if-match", "*")])
        .await
        .refused(403, "UnauthorizedBlobOverwrite");
    put(&[("if-none-match", "*")])
        .await
        .refused(403, "UnauthorizedBlobOverwrite");
    put(&[("if-unmodified-since", "Fri, 01 Jan 2100 00:00:00 GMT")])
        .await
        .refused(403, "UnauthorizedBlobOverwrite");
}

/// A request signed with the key may read every blob of its account, but a signature in the URL of the source must hold.
#[tokio::test]
async fn the_signature_of_a_source_is_verified_for_the_holder_of_the_key_too() {
    let client = fixture().await.client;
    client.upload("/box/a", "old", &[]).await.expect(201);
    let (own, other) = ("/blob/photos/box/a", "/blob/photos/box/other");
    let token = Token::service("b", "r");
    let rows = [
        (String::new(), None),
        (token.sign(own), None),
        (token.sign(own).replace("sig=", "SIG="), None),
        (
            token.clone().with("se", "2020-09-13T00:00:01Z").sign(own),
            Some("AuthenticationFailed"),
        ),
        (token.sign(other), Some("AuthenticationFailed")),
        (
            token.sign(other).replace("sig=", "SIG="),
            Some("AuthenticationFailed"),
        ),
        (
            Token::service("b", "w").sign(own),
            Some("AuthorizationPermissionMismatch"),
        ),
    ];
    let block = "/box/copy?comp=block&blockid=AA==";
    for (target, fields, status) in [
        ("/box/copy", &[][..], 202),
        ("/box/copy", &[("x-ms-requires-sync", "true")], 202),
        ("/box/copy", &[("x-ms-blob-type", "BlockBlob")], 201),
        (block, &[], 201),
    ] {
        for (query, refused) in &rows {
            let source = format!("http://localhost/photos/box/a?{query}");
            let fields = [
                fields,
                &[("host", "localhost"), ("x-ms-copy-source", &*source)],
            ]
            .concat();
            let copied = client.put(target, &fields, "").await;
            match refused {
                Some(code) => copied.refused(403, code),
                None => drop(copied.expect(status)),
            }
        }
    }
}

#[tokio::test]
async fn the_signature_may_have_its_name_in_any_case() {
    let client = fixture().await.client;
    client.upload("/box/a", "old", &[]).await.expect(201);
    let token = Token::service("b", "r");
    for name in ["sig=", "Sig=", "SIG="] {
        let query = token.sign("/blob/photos/box/a").replace("sig=", name);
        read(&client, "/box/a", &query).await.expect(200);
        let query = token.sign("/blob/photos/box/b").replace("sig=", name);
        read(&client, "/box/a", &query)
            .await
            .refused(403, "AuthenticationFailed");
    }
}
