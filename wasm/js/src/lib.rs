//! Strong entity tags, preconditions and byte ranges of `ifmatch-core` for JavaScript, for any Worker or server with
//! `Request` and `Headers`.
//!
//! The generated declarations include the TypeScript types in `types.ts`.

pub mod digest;
pub mod evaluate;
mod fields;
pub mod range;
pub mod tag;

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.ts");
