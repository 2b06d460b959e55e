//! Measures requests through the component beside those to the bare guest, one at a time in one process:
//! `IFMATCH_COMPONENT=… IFMATCH_GUEST=… cargo run --release --example speed`.

use std::time::Instant;

use component_host::{Compiled, Instance, Network, Strategy, compose, request};

/// Requests of each kind.
const COUNT: u32 = 2_000;

#[tokio::main]
async fn main() {
    let read = |name: &str| std::fs::read(std::env::var(name).expect(name)).expect("a file");
    let guest = read("IFMATCH_GUEST");
    let network = Network::default();
    network.notes.put("/notes/small", vec![b'x'; 1 << 10]);
    network.notes.put("/notes/large", vec![b'x'; 1 << 20]);
    let settings = [("STORE", "http://notes"), ("IFMATCH_REGISTER", "instance")];
    let bare = Compiled::new(&guest, Strategy::Cranelift).start(&network, &settings);
    let guarded = Compiled::new(
        &compose(&read("IFMATCH_COMPONENT"), &guest),
        Strategy::Cranelift,
    )
    .start(&network, &settings);
    let tag = guarded
        .call(request("GET /notes/small", &[], ""))
        .await
        .expect("an answer");
    let same = [("if-none-match", tag.field("etag"))];
    println!("microseconds per request    bare    guarded");
    for (head, fields) in [
        ("GET /notes/small", &same[..]),
        ("GET /notes/small", &[]),
        ("GET /notes/large", &[]),
        ("PUT /notes/written", &[]),
    ] {
        let (bare, guarded) = (
            measure(&bare, head, fields).await,
            measure(&guarded, head, fields).await,
        );
        let condition = if fields.is_empty() { "" } else { ", 304" };
        println!("{:<24}{bare:>8}{guarded:>11}", format!("{head}{condition}"));
    }
}

/// Returns the microseconds of a request.
async fn measure(instance: &Instance, head: &str, fields: &[(&str, &str)]) -> u128 {
    let begin = Instant::now();
    for _ in 0..COUNT {
        instance
            .call(request(head, fields, "content"))
            .await
            .expect("an answer");
    }
    begin.elapsed().as_micros() / u128::from(COUNT)
}
