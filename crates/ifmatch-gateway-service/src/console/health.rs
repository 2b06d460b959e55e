//! The state of each component of a gateway, with the cause of a fault and the next step.

use super::text::{self, Text};
use crate::endpoints::overview::{Certificate, Disk, Overview, RegisterState};

/// Part of a disk below which it is nearly full: one of this number.
const LOW: u64 = 20;
/// Time before the end of a certificate at which it should be renewed, in seconds.
const SOON: f64 = 14.0 * 86_400.0;

/// The card of a component.
pub(super) struct Card {
    pub(super) name: &'static str,
    /// `good`, `warning` or `problem`.
    pub(super) class: &'static str,
    pub(super) state: &'static str,
    pub(super) facts: Text,
    pub(super) cause: Option<Text>,
    pub(super) next: Option<&'static str>,
}

impl Card {
    fn new(name: &'static str, facts: impl Into<Text>) -> Self {
        Self { name, class: "good", state: "OK", facts: facts.into(), cause: None, next: None }
    }

    fn warn(self, state: &'static str, next: &'static str) -> Self {
        Self { class: "warning", state, next: Some(next), ..self }
    }

    fn down(self, cause: Option<Text>, next: &'static str) -> Self {
        Self { class: "problem", state: "Down", cause, next: Some(next), ..self }
    }
}

/// Returns the cards, faults first.
pub(super) fn cards(state: &Overview) -> Vec<Card> {
    let is_down = |component: &str| state.component.as_ref().is_some_and(|down| down.0 == component);
    let mut cards = Vec::new();
    if let Some(storage) = &state.storage {
        let card = Card::new("Store", storage.0.as_str());
        cards.push(if is_down("store") {
            card.down(state.reason.clone(), "Check the store's server, or the folder's disk and permissions.")
        } else {
            card
        });
    }
    if let Some(register) = &state.register {
        let card = Card::new("Register", facts_of(register));
        cards.push(if is_down("register") {
            card.down(
                state.reason.clone(),
                "Bring the server of --register back. Until then, writes fail; reads that don't need it keep working.",
            )
        } else {
            card
        });
    }
    cards.extend(state.disk.as_ref().map(disk));
    cards.extend(state.certificates.iter().map(|end| certificate(end, state.now)));
    cards.extend(servers(state));
    cards.sort_by_key(|card| ["problem", "warning"].iter().position(|class| *class == card.class).unwrap_or(2));
    cards
}

fn facts_of(register: &RegisterState) -> String {
    let mut facts = vec![format!("{} guarantee, epoch {}", register.guarantee, register.epoch)];
    for (name, seconds) in [("load", register.mean_load), ("swap", register.mean_swap)] {
        facts.extend(seconds.map(|seconds| format!("{name} {} on average", text::millis(Some(&seconds)))));
    }
    facts.extend(register.clock_error.map(|error| format!("clock within {}", text::millis(Some(&error)))));
    facts.join(", ")
}

fn disk(disk: &Disk) -> Card {
    let facts = format!("{} free of {}", text::bytes(disk.free), text::bytes(disk.total));
    let card = Card::new("Disk", facts);
    if disk.free < disk.total / LOW {
        card.warn("Nearly full", "Free space or move the data to a larger disk. Writes fail when it's full.")
    } else {
        card
    }
}

fn certificate(certificate: &Certificate, now: f64) -> Card {
    let left = certificate.ends - now;
    let when = if left > 0.0 { format!("expires in {}", text::span(left)) } else { "has expired".to_owned() };
    let card = Card::new("Certificate", format!("{} {when}", certificate.file));
    let next = "Renew it, then reload with SIGHUP.";
    match left {
        ..=0.0 => card.warn("Expired", next),
        left if left < SOON => card.warn("Expires soon", next),
        _ => card,
    }
}

/// Returns the card of the servers of all upstreams.
fn servers(state: &Overview) -> Option<Card> {
    let all = state.servers.len();
    let names = |are_healthy: bool| {
        let servers = state.servers.iter().filter(|server| server.healthy == are_healthy);
        servers.map(|server| format!("{} ({})", server.name, server.route)).collect::<Vec<_>>()
    };
    let (healthy, down) = (names(true), names(false));
    let facts = if healthy.is_empty() { "none in use".to_owned() } else { format!("in use: {}", healthy.join(", ")) };
    let card = Card::new("Upstreams", facts);
    let cause = Some(Text(format!("{} of {all} out of use: {}", down.len(), down.join(", "))));
    let next = "Check that these servers run and respond. They are used again once they do.";
    match down.len() {
        _ if all == 0 => None,
        0 => Some(card),
        count if count == all => Some(card.down(cause, next)),
        _ => Some(Card { cause, ..card.warn("Degraded", next) }),
    }
}
