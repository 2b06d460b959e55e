//! The state of each component of a gateway, with the cause of a fault and the next step.

use crate::endpoints::overview::{
    CertificateEnd, DiskSpace, Overview, RegisterState, ServerStatus,
};
use crate::text::{self, Text};

/// A disk is nearly full while less than one part in this number is free.
const LOW: u64 = 20;

/// The card of a component.
pub(super) struct HealthCard {
    pub(super) name: &'static str,
    /// `good`, `warning` or `problem`.
    pub(super) class: &'static str,
    /// The class in words, such as `Nearly full`.
    pub(super) state: &'static str,
    pub(super) facts: Text,
    pub(super) cause: Option<Text>,
    pub(super) faults: Vec<ServerFault>,
    /// When the fault was noticed, in seconds since 1970.
    pub(super) since: Option<f64>,
    /// What the operator should do.
    pub(super) next: Option<&'static str>,
}

/// A server that hasn't responded since it failed.
pub(super) struct ServerFault {
    pub(super) name: Text,
    /// When it last failed, in seconds since 1970.
    pub(super) last: f64,
    pub(super) cause: Text,
    /// `true` while other servers get its requests.
    pub(super) is_out: bool,
}

impl HealthCard {
    fn new(name: &'static str, facts: impl Into<Text>) -> Self {
        Self {
            name,
            class: "good",
            state: "OK",
            facts: facts.into(),
            cause: None,
            faults: Vec::new(),
            since: None,
            next: None,
        }
    }

    /// Returns the card of a component that needs attention soon.
    fn warn(self, state: &'static str, next: &'static str) -> Self {
        Self {
            class: "warning",
            state,
            next: Some(next),
            ..self
        }
    }

    /// Returns the card of the component that is unavailable.
    fn down(self, state: &Overview, next: &'static str) -> Self {
        let cause = state.reason.clone();
        Self {
            class: "problem",
            state: "Down",
            cause,
            since: state.since,
            next: Some(next),
            ..self
        }
    }
}

/// Returns the cards, faults first.
pub(super) fn cards(state: &Overview) -> Vec<HealthCard> {
    let is_down = |component: &str| {
        state
            .component
            .as_ref()
            .is_some_and(|down| down.0 == component)
    };
    let mut cards = Vec::new();
    if let Some(storage) = &state.storage {
        let card = HealthCard::new("Store", storage.0.as_str());
        cards.push(if is_down("store") {
            card.down(
                state,
                "Check the store's server, or the folder's disk and permissions.",
            )
        } else {
            card
        });
    }
    if let Some(register) = &state.register {
        let card = HealthCard::new("Register", facts_of(register));
        cards.push(if is_down("register") {
            card.down(
                state,
                "Bring the --register server back up. Until then, writes fail; reads that don't need it keep working.",
            )
        } else {
            card
        });
    }
    cards.extend(state.disk.as_ref().map(disk));
    cards.extend(
        state
            .certificates
            .iter()
            .map(|end| certificate(end, state.now)),
    );
    cards.extend(servers(state));
    cards.sort_by_key(|card| {
        ["problem", "warning"]
            .iter()
            .position(|class| *class == card.class)
            .unwrap_or(2)
    });
    cards
}

/// Describes a register: its guarantee, epoch, mean times and clock.
fn facts_of(register: &RegisterState) -> String {
    let mut facts = vec![format!(
        "{} guarantee, epoch {}",
        register.guarantee, register.epoch
    )];
    for (name, seconds) in [("load", register.mean_load), ("swap", register.mean_swap)] {
        facts.extend(seconds.map(|seconds| format!("{name} {} on average", text::millis(seconds))));
    }
    facts.extend(
        register
            .clock_error
            .map(|error| format!("clock within {}", text::millis(error))),
    );
    facts.join(", ")
}

fn disk(disk: &DiskSpace) -> HealthCard {
    let facts = format!(
        "{} free of {}",
        text::bytes(disk.free),
        text::bytes(disk.total)
    );
    let card = HealthCard::new("Disk", facts);
    if disk.free < disk.total / LOW {
        card.warn(
            "Nearly full",
            "Free space or move the data to a larger disk. Writes fail when it's full.",
        )
    } else {
        card
    }
}

fn certificate(certificate: &CertificateEnd, now: f64) -> HealthCard {
    let left = certificate.ends - now;
    let when = if left > 0.0 {
        format!("expires in {}", text::span(left))
    } else {
        format!("expired {} ago", text::span(-left))
    };
    let card = HealthCard::new("Certificate", format!("{} {when}", certificate.file));
    let next = "Renew it, then reload with SIGHUP.";
    if left <= 0.0 {
        card.warn("Expired", next)
    } else if now >= certificate.renewal {
        card.warn("Expires soon", next)
    } else {
        card
    }
}

/// Returns the card of the servers of all upstreams. A server is in use until it fails, and again once it has responded.
fn servers(state: &Overview) -> Option<HealthCard> {
    if state.servers.is_empty() {
        return None;
    }
    let (working, failing): (Vec<_>, Vec<_>) = state
        .servers
        .iter()
        .partition(|server| server.healthy && server.failing.is_none());
    let names: Vec<_> = working.iter().map(|server| server.named()).collect();
    let facts = if names.is_empty() {
        "none in use".to_owned()
    } else {
        format!("in use: {}", names.join(", "))
    };
    let card = HealthCard::new("Upstreams", facts);
    if failing.is_empty() {
        return Some(card);
    }
    let sinces = failing
        .iter()
        .filter_map(|server| server.failing.as_ref())
        .map(|failing| failing.since);
    let (class, word) = match (
        working.is_empty(),
        failing.iter().any(|server| server.healthy),
    ) {
        (true, false) => ("problem", "Down"),
        // The next request decides.
        (true, true) => ("problem", "Failing"),
        (false, _) => ("warning", "Degraded"),
    };
    Some(HealthCard {
        class,
        state: word,
        since: sinces.min_by(f64::total_cmp),
        faults: failing.iter().filter_map(|server| server.fault()).collect(),
        next: Some(
            "Check that these servers are running and responding. Each is used again once a request to it succeeds.",
        ),
        ..card
    })
}

impl ServerStatus {
    /// Returns its name and route.
    fn named(&self) -> String {
        format!("{} ({})", self.name, self.route)
    }

    /// Returns its fault, unless it works.
    fn fault(&self) -> Option<ServerFault> {
        let failing = self.failing.as_ref()?;
        Some(ServerFault {
            name: self.named().into(),
            last: failing.last,
            cause: failing.cause.clone(),
            is_out: !self.healthy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::overview::ServerFailure;

    fn server(name: &str, healthy: bool, failed: Option<f64>) -> ServerStatus {
        let failing = failed.map(|ago| ServerFailure {
            since: 1000.0 - 2.0 * ago,
            last: 1000.0 - ago,
            cause: "it refused the connection".into(),
        });
        ServerStatus {
            route: "/".into(),
            name: name.into(),
            healthy,
            failing,
        }
    }

    #[test]
    fn a_certificate_expires_soon_once_it_should_have_been_renewed() {
        let day = 86_400.0;
        for (renewal, ends, expected) in [
            (1000.0 + day, 1000.0 + 3.0 * day, "OK"),
            (1000.0, 1000.0 + 2.0 * day, "Expires soon"),
            (1000.0 - day, 1000.0, "Expired"),
        ] {
            let end = CertificateEnd {
                file: "a".into(),
                renewal,
                ends,
            };
            assert_eq!(certificate(&end, 1000.0).state, expected);
        }
    }

    #[test]
    fn a_server_that_has_not_responded_since_it_failed_is_not_in_use() {
        for (servers, expected) in [
            (vec![server("a", true, None)], ("OK", "in use: a (/)", None)),
            (
                vec![server("a", true, Some(40.0))],
                ("Failing", "none in use", Some(920.0)),
            ),
            (
                vec![server("a", false, Some(4.0))],
                ("Down", "none in use", Some(992.0)),
            ),
            (
                vec![server("a", true, None), server("b", true, Some(40.0))],
                ("Degraded", "in use: a (/)", Some(920.0)),
            ),
        ] {
            let mut state = Overview::example();
            state.servers = servers;
            let card = cards(&state)
                .into_iter()
                .find(|card| card.name == "Upstreams")
                .unwrap();
            assert_eq!((card.state, card.facts.0.as_str(), card.since), expected);
            let faults: Vec<_> = card
                .faults
                .iter()
                .map(|fault| (fault.last, fault.is_out))
                .collect();
            let failed = expected.2.map(|_| {
                (
                    if expected.0 == "Down" { 996.0 } else { 960.0 },
                    expected.0 == "Down",
                )
            });
            assert_eq!(faults, Vec::from_iter(failed));
        }
    }
}
