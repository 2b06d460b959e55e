//! Fuzzes `lease_id`; the body also runs as an ordinary test of ifmatch-core.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target uses one body")]
#[path = "../../crates/ifmatch-core/tests/fuzz_bodies/mod.rs"]
mod fuzz_bodies;

fuzz_target!(|data: &[u8]| fuzz_bodies::lease_id(data));
