//! Strong entity tags, preconditions and byte ranges for JavaScript: what `ifmatch-core` decides, for any Worker or server
//! that speaks `Request` and `Headers`.
//!
//! The types of TypeScript are in `types.ts`; they are part of the generated declarations.

pub mod digest;
pub mod evaluate;
mod fields;
pub mod range;
pub mod tag;

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.ts");
