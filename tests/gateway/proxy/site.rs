//! The configuration of a whole site in examples/site.toml does what its comments say.

use std::fs;

use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use support::raw::exchange;
use support::{Answer, Gateway, run};

use super::is_hit;
use super::origin::{Origin, ok};
use crate::eventually;
use crate::tls::Files;

const SITE: &str = include_str!("../../../examples/site.toml");

fn replaced(mut text: String, pairs: &[(&str, &str)]) -> String {
    for (from, to) in pairs {
        assert!(text.contains(from), "{from} is missing in the example");
        text = text.replace(from, to);
    }
    text
}

async fn ask(gateway: &Gateway, files: &[&Files], host: &str, path: &str) -> Answer {
    let stream = Files::request(files, gateway, host, &["http/1.1"]).await;
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(path).header("host", host).header("cookie", "visitor=1");
    let response = client.send_request(request.body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: head.status, headers: head.headers, body, trailers: http::HeaderMap::default() }
}

#[tokio::test]
async fn the_example_of_a_site_works() {
    let certificates = [Files::of("shop.example"), Files::of("blog.example")];
    let [shop, blog] = ["shop", "blog"].map(|name| Origin::start(move |_| ok("cache-control: no-store\r\n", name)));
    let images = Origin::start(|asked| match asked.head.split(' ').nth(1).unwrap() {
        "/own" => ok("cache-control: private\r\nset-cookie: visitor=2\r\n", "own"),
        "/busy" => "HTTP/1.1 429 Busy\r\ncontent-length: 4\r\n\r\nbusy".to_owned(),
        _ => ok("set-cookie: visitor=2\r\n", "image"),
    });
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = |at: usize, name: &str| certificates[at].path(name).to_str().unwrap().to_owned();
    let (log, site) = (path("access.log"), path("site.toml"));
    let text = replaced(
        SITE.to_owned(),
        &[
            ("\"0.0.0.0:443\", \"[::]:443\"", "\"127.0.0.1:0\""),
            ("\"0.0.0.0:80\", \"[::]:80\"", "\"127.0.0.1:0\""),
            ("127.0.0.1:9000", "127.0.0.1:0"),
            ("/etc/ifmatch/shop.example.pem", &file(0, "cert.pem")),
            ("/etc/ifmatch/shop.example.key", &file(0, "key.pem")),
            ("/etc/ifmatch/blog.example.pem", &file(1, "cert.pem")),
            ("/etc/ifmatch/blog.example.key", &file(1, "key.pem")),
            ("/var/cache/ifmatch", &path("cache")),
            ("/var/log/ifmatch/access.log", &log),
            ("http://10.0.0.7:8080", &shop.url()),
            ("http://10.0.0.8:8080", &shop.url()),
            ("http://10.0.0.7:8081", &images.url()),
            ("http://10.0.0.8:8081", &images.url()),
            ("http://10.0.0.9:2368", &blog.url()),
        ],
    );
    fs::write(&site, text).unwrap();
    let checked = run(["proxy", "--check", "--config", &site]);
    assert_eq!((checked.status.code(), checked.stdout.as_str()), (Some(0), "ok\n"), "{checked:#?}");

    let mut gateway = Gateway::start(["proxy", "--config", &site, "--listen", "127.0.0.1:0"]);
    let admin = gateway.line_after("endpoints on http://").replace("/-/", "").parse().unwrap();
    let plain = gateway.line_after("redirecting http://").replace(" to https", "").parse().unwrap();
    let trusted: Vec<_> = certificates.iter().collect();

    let page = ask(&gateway, &trusted, "shop.example", "/page?utm_source=a&b=1").await.expect(200);
    assert_eq!((page.text(), page.header("strict-transport-security")), ("shop", "max-age=31536000"));
    assert!(shop.asked().iter().any(|asked| asked.head.starts_with("get /page?b=1 ")), "{:?}", shop.asked());
    assert_eq!(ask(&gateway, &trusted, "blog.example", "/").await.expect(200).text(), "blog");
    let image = ask(&gateway, &trusted, "shop.example", "/images/cat").await.expect(200);
    assert_eq!(image.text(), "image");
    assert!(!image.headers.contains_key("set-cookie"), "{image:?}");
    let asked = images.asked().into_iter().find(|asked| asked.head.starts_with("get /cat ")).unwrap();
    assert_eq!(asked.field("cookie"), None);
    assert!(is_hit(&ask(&gateway, &trusted, "shop.example", "/images/cat").await));
    for path in ["/images/own", "/images/busy"] {
        for _ in 0..2 {
            let answer = ask(&gateway, &trusted, "shop.example", path).await;
            assert!(!is_hit(&answer), "{path} is private or an error: {answer:?}");
        }
    }

    let moved = exchange(plain, "GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n").expect(308);
    assert_eq!(moved.header("location"), format!("https://shop.example:{}/a", gateway.address().port()));
    exchange(admin, "GET /-/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect(200);
    let purged = exchange(admin, "PURGE /images/cat HTTP/1.1\r\nHost: shop.example\r\n\r\n").expect(200);
    assert_eq!(purged.json()["purged"], 1);
    eventually("a line of the log", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        log.contains("\"GET /images/cat HTTP/1.1\" 200 5 \"-\" \"-\"").then_some(())
    });
}
