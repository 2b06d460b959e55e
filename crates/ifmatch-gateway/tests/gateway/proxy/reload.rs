//! The file of a whole site, and SIGHUP: new upstreams and certificates, without a lost request.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::{fs, thread};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ifmatch_testbed::LIMIT;
use rustls::pki_types::CertificateDer;
use support::origin::{Origin, ok};
use support::raw::{Connection, exchange};
use support::tls::Files;
use support::{Answer, Gateway, run};

use super::{get, is_hit};
use crate::{NOT_RELOADED, RELOADED, eventually, hang_up};

/// A proxy with a configuration file.
struct Site {
    gateway: Gateway,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Site {
    fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.toml");
        fs::write(&file, config).unwrap();
        let gateway = Gateway::start(["proxy", "--cache", "0", "--config", file.to_str().unwrap()]);
        Self {
            gateway,
            file,
            _folder: folder,
        }
    }

    /// Replaces the file and waits until the log contains this text once more.
    fn reload(&self, config: &str, text: &str) {
        fs::write(&self.file, config).unwrap();
        hang_up(&self.gateway, text);
    }
}

fn to(origin: &Origin) -> String {
    format!("[proxy]\nupstream = ['{}']\n", origin.url())
}

fn named(name: &'static str) -> Origin {
    Origin::start(move |_| ok("", name))
}

#[test]
fn no_request_is_lost_while_upstreams_are_exchanged() {
    let origins = [named("a"), named("b")];
    let site = Site::start(&to(&origins[0]));
    let done = AtomicBool::new(false);
    let address = site.gateway.address();
    let ask_until_done = || {
        let mut names = String::new();
        let mut connection = Connection::open(address);
        while !done.load(Ordering::SeqCst) {
            connection.send("GET / HTTP/1.1\r\nhost: example.com\r\n\r\n");
            names.push_str(connection.answer().expect(200).text());
        }
        names
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(ask_until_done)).collect();
        for round in 1..=20 {
            site.reload(&to(&origins[round % 2]), RELOADED);
            let expected = ["a", "b"][round % 2];
            assert_eq!(get(&site.gateway, "/", "").expect(200).text(), expected);
        }
        done.store(true, Ordering::SeqCst);
        for client in clients {
            let names = client.join().unwrap();
            assert!(names.contains('a') && names.contains('b'), "{names}");
        }
    });
}

#[test]
fn a_request_in_progress_ends_at_its_former_upstream() {
    let (arrival, arrived) = channel();
    let (release, permission) = channel::<()>();
    let (arrival, permission) = (Mutex::new(arrival), Mutex::new(permission));
    let former = Origin::start(move |_| {
        arrival.lock().unwrap().send(()).unwrap();
        permission
            .lock()
            .unwrap()
            .recv_timeout(LIMIT)
            .expect("the test releases the request");
        ok("", "former")
    });
    let site = Site::start(&to(&former));
    let mut slow = Connection::open(site.gateway.address());
    slow.send("GET / HTTP/1.1\r\nhost: example.com\r\n\r\n");
    arrived
        .recv_timeout(LIMIT)
        .expect("the request reaches its upstream");
    site.reload(&to(&named("new")), RELOADED);
    release.send(()).unwrap();
    assert_eq!(slow.answer().expect(200).text(), "former");
    assert_eq!(get(&site.gateway, "/", "").expect(200).text(), "new");
}

#[test]
fn an_invalid_configuration_changes_nothing() {
    let origin = named("a");
    let site = Site::start(&to(&origin));
    for invalid in [
        "[proxy]\nupstream = ['nonsense']",
        "[proxy]\nupstreams = ['http://localhost:1']",
        "[proxy",
        "",
        "tls-cert = 'missing.pem'\ntls-key = 'missing.pem'\n[proxy]\nupstream = ['http://localhost:1']",
    ] {
        site.reload(invalid, NOT_RELOADED);
        assert_eq!(
            get(&site.gateway, "/", "").expect(200).text(),
            "a",
            "{invalid}"
        );
    }
    assert_eq!(site.gateway.stderr().matches(RELOADED).count(), 0);
    site.reload(&to(&named("b")), RELOADED);
    assert_eq!(get(&site.gateway, "/", "").expect(200).text(), "b");
}

#[test]
fn an_unhealthy_server_stays_so() {
    let sick = Origin::start(|asked| {
        let health = asked.head.starts_with("get /health ");
        if health {
            "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".to_owned()
        } else {
            ok("", "sick")
        }
    });
    let well = named("well");
    let config = |interval: &str| {
        let (sick, well) = (sick.url(), well.url());
        format!(
            "[proxy]\nupstream = ['{sick}', '{well}']\nhealth-path = '/health'\nhealth-interval = '{interval}'"
        )
    };
    let site = Site::start(&config("20ms"));
    let all_well = || (0..4).all(|_| get(&site.gateway, "/", "").expect(200).text() == "well");
    eventually("the sick server is known", || all_well().then_some(()));
    for _ in 0..5 {
        site.reload(&config("1h"), RELOADED);
        assert!(all_well());
    }
}

/// Returns the certificate that a server presents.
async fn presented(files: &Files, gateway: &Gateway) -> CertificateDer<'static> {
    let stream = files.connect(gateway, &["http/1.1"]).await;
    stream.get_ref().1.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}

fn copy(from: &Files, to: &Path) {
    for name in ["cert.pem", "key.pem"] {
        fs::copy(from.path(name), to.join(name)).unwrap();
    }
}

#[tokio::test]
async fn certificates_are_exchanged() {
    let (first, second) = (Files::new(), Files::new());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let origin = named("a");
    let upstream = origin.url();
    for command in [
        &["serve", "--store", "memory://"][..],
        &["proxy", "--upstream", &upstream],
    ] {
        copy(&first, folder.path());
        let gateway = Gateway::start([command, &["--tls-cert", &cert, "--tls-key", &key]].concat());
        let before = presented(&first, &gateway).await;
        let open = first.connect(&gateway, &["http/1.1"]).await;
        // A key that doesn't match the certificate.
        fs::copy(second.path("key.pem"), &key).unwrap();
        hang_up(&gateway, NOT_RELOADED);
        assert_eq!(presented(&first, &gateway).await, before);
        copy(&second, folder.path());
        hang_up(&gateway, RELOADED);
        assert_ne!(presented(&second, &gateway).await, before);
        // Connections continue.
        let (mut client, connection) = http1::handshake(TokioIo::new(open)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("/-/health").header("host", "localhost");
        let health = client
            .send_request(request.body(Empty::<Bytes>::new()).unwrap())
            .await
            .unwrap();
        assert_eq!(health.status(), 200);
    }
}

/// The guard gives a write up after its own time. It goes on until a restart, also if the file no longer names it.
#[test]
fn a_reload_gives_no_route_of_a_guarded_proxy_a_time_of_its_own() {
    let origin = named("one");
    let site = Site::start(&format!("{}guard-writes = true\n", to(&origin)));
    let slow = format!(
        "[[proxy.route]]\nmatch = '/slow'\nupstream = ['{}']\nanswer-timeout = '1h'\n",
        origin.url()
    );
    site.reload(&format!("{}{slow}", to(&origin)), NOT_RELOADED);
    site.reload(
        &format!("{}guard-writes = true\n{slow}", to(&origin)),
        NOT_RELOADED,
    );
    assert!(
        site.gateway
            .stderr()
            .contains("Remove answer-timeout from the routes")
    );
    site.reload(
        &format!(
            "{}{}",
            to(&origin),
            slow.replace("answer-timeout = '1h'", "")
        ),
        RELOADED,
    );
}

const SITE: &str = include_str!("../../../../../examples/site.toml");

fn replaced(mut text: String, pairs: &[(&str, &str)]) -> String {
    for (from, to) in pairs {
        assert!(text.contains(from), "{from} is missing in the example");
        text = text.replace(from, to);
    }
    text
}

async fn ask(gateway: &Gateway, files: &[&Files], host: &str, path: &str) -> Answer {
    let stream = Files::connect_to_host(files, gateway, host, &["http/1.1"]).await;
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(path)
        .header("host", host)
        .header("cookie", "visitor=1");
    let response = client
        .send_request(request.body(Empty::<Bytes>::new()).unwrap())
        .await
        .unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer {
        status: head.status,
        headers: head.headers,
        body,
        trailers: http::HeaderMap::default(),
    }
}

#[tokio::test]
async fn the_example_of_a_site_works() {
    let certificates = [Files::of("shop.example"), Files::of("blog.example")];
    let [shop, blog] = ["shop", "blog"]
        .map(|name| Origin::start(move |_| ok("cache-control: no-store\r\n", name)));
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
    assert_eq!(
        (checked.status.code(), checked.stdout.as_str()),
        (Some(0), "ok\n"),
        "{checked:#?}"
    );

    let mut gateway = Gateway::start(["proxy", "--config", &site, "--listen", "127.0.0.1:0"]);
    let admin = gateway
        .line_after("endpoints on http://")
        .replace("/-/", "")
        .parse()
        .unwrap();
    let plain = gateway
        .line_after("redirecting http://")
        .replace(" to https", "")
        .parse()
        .unwrap();
    let trusted: Vec<_> = certificates.iter().collect();

    let page = ask(&gateway, &trusted, "shop.example", "/page?utm_source=a&b=1")
        .await
        .expect(200);
    assert_eq!(
        (page.text(), page.header("strict-transport-security")),
        ("shop", "max-age=31536000")
    );
    assert!(
        shop.asked()
            .iter()
            .any(|asked| asked.head.starts_with("get /page?b=1 ")),
        "{:?}",
        shop.asked()
    );
    assert_eq!(
        ask(&gateway, &trusted, "blog.example", "/")
            .await
            .expect(200)
            .text(),
        "blog"
    );
    let image = ask(&gateway, &trusted, "shop.example", "/images/cat")
        .await
        .expect(200);
    assert_eq!(image.text(), "image");
    assert!(!image.headers.contains_key("set-cookie"), "{image:?}");
    let asked = images
        .asked()
        .into_iter()
        .find(|asked| asked.head.starts_with("get /cat "))
        .unwrap();
    assert_eq!(asked.field("cookie"), None);
    assert!(is_hit(
        &ask(&gateway, &trusted, "shop.example", "/images/cat").await
    ));
    for path in ["/images/own", "/images/busy"] {
        for _ in 0..2 {
            let answer = ask(&gateway, &trusted, "shop.example", path).await;
            assert!(
                !is_hit(&answer),
                "{path} is private or an error: {answer:?}"
            );
        }
    }

    let moved = exchange(plain, "GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n").expect(308);
    assert_eq!(
        moved.header("location"),
        format!("https://shop.example:{}/a", gateway.address().port())
    );
    exchange(admin, "GET /-/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect(200);
    let purged = exchange(
        admin,
        "PURGE /images/cat HTTP/1.1\r\nHost: shop.example\r\n\r\n",
    )
    .expect(200);
    assert_eq!(purged.json()["purged"], 1);
    eventually("a line of the log", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        log.contains("\"GET /images/cat HTTP/1.1\" 200 5 \"-\" \"-\"")
            .then_some(())
    });
}
