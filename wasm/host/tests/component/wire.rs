//! The rules of conditional requests on the wire, by the checks of `ifmatch check`, which owns them.

use component_host::{Instance, Network, Port};
use serde_json::Value;

use crate::gateway::{Gateway, check};
use crate::{JAVASCRIPT, PYTHON, start};

/// Sections of RFC 9110 with a check.
const SECTIONS: [&str; 8] = [
    "8.8.3", "13.1.1", "13.1.2", "13.1.3", "13.1.4", "13.1.5", "13.2.2", "14.2",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_check_of_a_guest_in_rust_says_yes() {
    let gateway = Gateway::start().await;
    let instance = start(
        &Network::default(),
        &[("IFMATCH_REGISTER", &gateway.folder())],
    );
    all_say_yes(vec![instance]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_of_two_instances_behind_one_port_says_yes() {
    let (network, gateway) = (Network::default(), Gateway::start().await);
    let instance = || start(&network, &[("IFMATCH_REGISTER", &gateway.folder())]);
    all_say_yes(vec![instance(), instance()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_of_guests_in_other_languages_says_yes() {
    for guest in [&JAVASCRIPT, &PYTHON] {
        let gateway = Gateway::start().await;
        let instance = guest.start(
            &Network::default(),
            &[("IFMATCH_REGISTER", &gateway.folder())],
        );
        all_say_yes(vec![instance]).await;
    }
}

async fn all_say_yes(instances: Vec<Instance>) {
    let port = Port::open(instances).await.unwrap();
    let checks = check(&format!("{}/notes", port.url())).await;
    let wrong: Vec<&Value> = checks
        .iter()
        .filter(|check| check["result"] != "yes")
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for section in SECTIONS {
        assert!(
            checks.iter().any(|check| check["section"] == section),
            "no check of {section}"
        );
    }
}
