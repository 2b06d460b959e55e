//! The addresses of upstream servers by name, which are looked up again at intervals.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tokio::time::{Instant, timeout};
use tower_service::Service;

/// Age at which an answer of the system is looked up again.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Time that a connection waits for a new answer before it uses the last one.
const PATIENCE: Duration = Duration::from_secs(1);

type ResolveResult = io::Result<Vec<SocketAddr>>;
type PendingLookup = Pin<Box<dyn Future<Output = ResolveResult> + Send>>;

/// Looks names up, and remembers the answers. If a lookup fails, the last good answer applies.
#[derive(Clone)]
pub(crate) struct NameResolver(Arc<ResolverState>);

struct ResolverState {
    lookup: Box<dyn Fn(Name) -> PendingLookup + Send + Sync>,
    /// Age at which an answer is looked up again.
    max_age: Duration,
    /// The last good answers. Their number is limited by the configuration, which contains the names.
    answers: Mutex<HashMap<String, ResolvedName>>,
}

/// The last good answer for a name.
struct ResolvedName {
    /// In the order in which the next connection tries them.
    addresses: Vec<SocketAddr>,
    /// Time of the last lookup, which may have failed or not ended yet.
    asked: Instant,
}

impl ResolvedName {
    /// Returns `true` if the caller must look the name up again. Only one caller is told so.
    fn claim(&mut self, max_age: Duration) -> bool {
        let due = self.asked.elapsed() >= max_age;
        if due {
            self.asked = Instant::now();
        }
        due
    }
}

impl NameResolver {
    /// Asks the operating system.
    pub(crate) fn system() -> Self {
        Self::new(MAX_AGE, |name| {
            let found = GaiResolver::new().call(name);
            Box::pin(async { found.await.map(Iterator::collect) })
        })
    }

    /// Calls `lookup` for a name, and again when its last answer has reached `max_age`.
    pub(crate) fn new(
        max_age: Duration,
        lookup: impl Fn(Name) -> PendingLookup + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(ResolverState {
            lookup: Box::new(lookup),
            max_age,
            answers: Mutex::default(),
        }))
    }

    /// Returns `false` if the last answer for a name, if there is one, doesn't contain this address. Never waits: an
    /// old answer is looked up again in the background.
    pub(crate) fn is_current(&self, name: &str, address: IpAddr) -> bool {
        let mut answers = self.answers();
        let Some(answer) = answers.get_mut(name) else {
            return true;
        };
        if answer.claim(self.0.max_age)
            && let Ok(name) = name.parse()
        {
            tokio::spawn(self.clone().look_up(name));
        }
        answer.addresses.iter().any(|known| known.ip() == address)
    }

    async fn addresses(self, name: Name) -> ResolveResult {
        let last = match self.answers().get_mut(name.as_str()) {
            None => None,
            Some(answer) => {
                let due = answer.claim(self.0.max_age);
                let addresses = answer.addresses.clone();
                rotate(&mut answer.addresses);
                if !due {
                    return Ok(addresses);
                }
                Some(addresses)
            }
        };
        // Continues if the request is cancelled.
        let lookup = tokio::spawn(self.look_up(name));
        match last {
            None => lookup.await.map_err(io::Error::other)?,
            Some(last) => Ok(match timeout(PATIENCE, lookup).await {
                Ok(Ok(Ok(found))) => found,
                _ => last,
            }),
        }
    }

    async fn look_up(self, name: Name) -> ResolveResult {
        let found = match (self.0.lookup)(name.clone()).await {
            Ok(found) if found.is_empty() => Err(io::Error::other("the name has no addresses")),
            found => found,
        };
        match &found {
            Ok(addresses) => {
                let mut answer = ResolvedName {
                    addresses: addresses.clone(),
                    asked: Instant::now(),
                };
                rotate(&mut answer.addresses);
                self.answers().insert(name.as_str().to_owned(), answer);
            }
            Err(error) => {
                tracing::warn!(%name, %error, "cannot look up the addresses of an upstream server");
            }
        }
        found
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<String, ResolvedName>> {
        self.0
            .answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves the first address behind the others of its family, so connections are distributed over the addresses. The
/// system prefers one family for a reason.
fn rotate(addresses: &mut [SocketAddr]) {
    if let Some(first) = addresses.first().copied() {
        let family = addresses
            .iter()
            .take_while(|address| address.is_ipv4() == first.is_ipv4())
            .count();
        addresses[..family].rotate_left(1);
    }
}

impl Service<Name> for NameResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = self.clone().addresses(name);
        Box::pin(async { found.await.map(Vec::into_iter) })
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const ONE: [u8; 4] = [192, 0, 2, 1];
    const TWO: [u8; 4] = [192, 0, 2, 2];

    /// The current answer of a fake server, and the number of lookups.
    #[derive(Default)]
    struct Dns {
        /// `None` fails.
        addresses: Option<Vec<[u8; 4]>>,
        hangs: bool,
        lookups: u32,
    }

    fn resolver(dns: &Arc<Mutex<Dns>>) -> NameResolver {
        let dns = Arc::clone(dns);
        NameResolver::new(MAX_AGE, move |_| {
            let mut dns = dns.lock().unwrap();
            dns.lookups += 1;
            if dns.hangs {
                return Box::pin(pending());
            }
            let found = dns
                .addresses
                .iter()
                .flatten()
                .map(|address| SocketAddr::from((*address, 0)));
            Box::pin(ready(
                dns.addresses
                    .as_ref()
                    .map(|_| found.collect())
                    .ok_or_else(|| io::Error::other("no server")),
            ))
        })
    }

    async fn found(resolver: &NameResolver) -> Option<Vec<IpAddr>> {
        let found = resolver
            .clone()
            .addresses("a.example".parse().unwrap())
            .await;
        found
            .ok()
            .map(|addresses| addresses.iter().map(SocketAddr::ip).collect())
    }

    fn ips(addresses: &[[u8; 4]]) -> Vec<IpAddr> {
        addresses
            .iter()
            .map(|address| IpAddr::from(*address))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_looked_up_again_when_it_is_old() {
        let dns = Arc::new(Mutex::new(Dns {
            addresses: Some(vec![ONE, TWO]),
            ..Dns::default()
        }));
        let resolver = resolver(&dns);
        assert_eq!(found(&resolver).await, Some(ips(&[ONE, TWO])));
        dns.lock().unwrap().addresses = Some(vec![TWO]);
        tokio::time::advance(MAX_AGE / 2).await;
        assert_eq!(
            found(&resolver).await,
            Some(ips(&[TWO, ONE])),
            "they take turns"
        );
        assert_eq!(dns.lock().unwrap().lookups, 1);
        tokio::time::advance(MAX_AGE / 2).await;
        assert_eq!(found(&resolver).await, Some(ips(&[TWO])));
        assert_eq!(dns.lock().unwrap().lookups, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_good_answer_applies_if_a_lookup_fails_or_hangs() {
        let dns = Arc::new(Mutex::new(Dns::default()));
        let resolver = resolver(&dns);
        assert_eq!(found(&resolver).await, None);
        dns.lock().unwrap().addresses = Some(vec![ONE]);
        assert_eq!(found(&resolver).await, Some(ips(&[ONE])));
        for hangs in [false, true] {
            *dns.lock().unwrap() = Dns {
                hangs,
                ..Dns::default()
            };
            tokio::time::advance(MAX_AGE).await;
            for _ in 0..3 {
                assert_eq!(found(&resolver).await, Some(ips(&[ONE])));
            }
            assert_eq!(dns.lock().unwrap().lookups, 1);
        }
        *dns.lock().unwrap() = Dns {
            addresses: Some(vec![]),
            ..Dns::default()
        };
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(found(&resolver).await, Some(ips(&[ONE])));
    }

    #[test]
    fn addresses_take_turns_within_their_family() {
        let mut addresses =
            ["[2001:db8::1]:0", "[2001:db8::2]:0", "192.0.2.1:0"].map(|text| text.parse().unwrap());
        let [one, two, three] = addresses;
        for expected in [[two, one, three], [one, two, three]] {
            rotate(&mut addresses);
            assert_eq!(addresses, expected);
        }
        rotate(&mut []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pooled_connection_s_address_is_checked_without_waiting() {
        let dns = Arc::new(Mutex::new(Dns {
            addresses: Some(vec![ONE]),
            ..Dns::default()
        }));
        let resolver = resolver(&dns);
        let is_current = |address: [u8; 4]| resolver.is_current("a.example", address.into());
        assert!(is_current(TWO), "an unknown name has any address");
        found(&resolver).await;
        assert!(is_current(ONE) && !is_current(TWO));
        dns.lock().unwrap().addresses = Some(vec![TWO]);
        tokio::time::advance(MAX_AGE).await;
        assert!(is_current(ONE), "the lookup has only begun");
        while is_current(ONE) {
            tokio::task::yield_now().await;
        }
        assert!(is_current(TWO));
    }
}
