//! Fuzzes `route_path`; the body also runs as an ordinary test of ifmatch-proxy.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the target uses a part of it")]
#[path = "../../crates/ifmatch-proxy/src/route/path.rs"]
mod path;
#[path = "../../crates/ifmatch-proxy/src/route/path_fuzz.rs"]
mod path_fuzz;

fuzz_target!(|data: &[u8]| path_fuzz::route_path(data));
