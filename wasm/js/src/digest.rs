//! Tags and digests of bytes.

use ifmatch_core::digest::{self, Hasher};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::fields::text;

/// The content tag of bytes: `"` + their SHA-256 in lower-case hexadecimal digits + `"`. Strong, and anyone can check it.
#[wasm_bindgen(js_name = contentTag)]
pub fn content_tag(bytes: &[u8]) -> String {
    ContentHash::of(bytes).content_tag()
}

/// The SHA-256 hash of a representation's bytes.
#[wasm_bindgen]
#[derive(Debug)]
pub struct ContentHash(digest::ContentHash);

#[wasm_bindgen]
impl ContentHash {
    /// The hash of bytes. For a stream, see `ContentHasher`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(digest::ContentHash::of(bytes))
    }

    /// The content tag: the same for the same bytes.
    #[wasm_bindgen(js_name = contentTag)]
    pub fn content_tag(&self) -> String {
        self.0.content_tag().to_string()
    }

    /// The tag with the number of the write, so that it changes with every write even where the bytes do not.
    #[wasm_bindgen(js_name = versionedTag)]
    pub fn versioned_tag(&self, generation: u64) -> String {
        self.0.versioned_tag(generation).to_string()
    }

    /// The value of `Repr-Digest` and `Content-Digest` (RFC 9530).
    #[wasm_bindgen(js_name = reprDigest)]
    pub fn repr_digest(&self) -> Option<String> {
        self.0.repr_digest().map(|value| text(value.as_bytes()))
    }
}

/// Hashes bytes that come one after the other.
#[wasm_bindgen]
#[derive(Debug, Default)]
pub struct ContentHasher(Hasher);

#[wasm_bindgen]
impl ContentHasher {
    /// A hash of nothing yet.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all bytes that were added. The hasher is used up.
    pub fn finish(self) -> ContentHash {
        ContentHash(self.0.finish())
    }
}
