//! Forwarding loops, through one or two proxies.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread;

use support::Gateway;
use support::raw::exchange;

use super::origin::{Origin, ok};
use super::{before, get};

/// A relay to an address that is set later.
struct Way {
    from: SocketAddr,
    to: Arc<OnceLock<SocketAddr>>,
}

impl Way {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (from, to) = (listener.local_addr().unwrap(), Arc::<OnceLock<SocketAddr>>::default());
        let known = Arc::clone(&to);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(known.wait()).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                for (mut from, mut to) in [(client, server), back] {
                    thread::spawn(move || io::copy(&mut from, &mut to));
                }
            }
        });
        Self { from, to }
    }

    /// Starts a proxy in front of it.
    fn proxy(&self, flags: &[&str]) -> Gateway {
        let upstream = format!("http://{}", self.from);
        Gateway::start(["proxy", "--upstream", &upstream].iter().chain(flags))
    }

    fn leads_to(&self, gateway: &Gateway) {
        self.to.set(gateway.address()).unwrap();
    }
}

#[test]
fn a_looping_request_is_rejected() {
    for flags in [&[][..], &["--cache", "0"], &["--guard-writes"], &["--rewrite-host", "--trust-forwarded"]] {
        let way = Way::open();
        let gateway = way.proxy(flags);
        way.leads_to(&gateway);
        for _ in 0..2 {
            get(&gateway, "/a", "").expect(508);
        }
        let put = "PUT /a HTTP/1.1\r\nhost: example.com\r\ncontent-length: 5\r\n\r\nhello";
        exchange(gateway.address(), put).expect(508);
    }
}

#[test]
fn loops_of_two_proxies_are_rejected_and_chains_are_not() {
    let (there, back) = (Way::open(), Way::open());
    let (first, second) = (there.proxy(&[]), back.proxy(&[]));
    there.leads_to(&second);
    back.leads_to(&first);
    get(&first, "/a", "").expect(508);

    let origin = Origin::start(|_| ok("cache-control: max-age=600\r\n", "hello"));
    let inner = before(&origin, &[]);
    let way = Way::open();
    let outer = way.proxy(&[]);
    way.leads_to(&inner);
    assert_eq!(get(&outer, "/a", "").expect(200).text(), "hello");
    let asked = origin.asked();
    let via = asked[0].head.lines().filter(|line| line.starts_with("via: ")).collect::<Vec<_>>();
    assert_eq!(via.concat().matches("ifmatch-").count(), 2, "{via:?}");
}
