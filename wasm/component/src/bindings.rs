//! The generated binding of the guest's handler.
#![allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

wit_bindgen::generate!({
    path: "wit",
    world: "ifmatch:component/component",
    generate_all,
    with: { "wasi:http/types@0.3.2": wasip3::http::types, "wasi:clocks/types@0.3.2": wasip3::clocks::types },
});
