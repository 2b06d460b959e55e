//! Tags and digests of bytes.

use ifmatch_core::digest::{self, Hasher};
use js_sys::{ArrayBuffer, Reflect, Uint8Array};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::fields::{Long, invalid, text};

#[wasm_bindgen]
extern "C" {
    /// Bytes.
    #[wasm_bindgen(typescript_type = "ArrayBuffer | ArrayBufferView")]
    pub type Bytes;

    #[wasm_bindgen(js_name = Uint8Array)]
    type Octets;
    /// Fails if the buffer is detached.
    #[wasm_bindgen(constructor, catch, js_class = "Uint8Array")]
    fn new(buffer: &ArrayBuffer, offset: u32, length: u32) -> Result<Octets, JsValue>;
}

/// Number of bytes copied at a time. WebAssembly never returns memory.
const STEP: u32 = 64 << 10;

/// Returns the content tag of bytes: their SHA-256 in lower-case hexadecimal digits, in quotes. It is strong and verifiable.
///
/// # Errors
/// A `TypeError` if the argument isn't bytes, such as a string.
#[wasm_bindgen(js_name = contentTag)]
pub fn content_tag(bytes: &Bytes) -> Result<String, JsValue> {
    Ok(ContentHash::of(bytes)?.content_tag())
}

/// The SHA-256 hash of a representation's bytes.
#[wasm_bindgen]
#[derive(Debug)]
pub struct ContentHash(digest::ContentHash);

#[wasm_bindgen]
impl ContentHash {
    /// Hashes bytes. For a stream, see `ContentHasher`.
    ///
    /// # Errors
    /// A `TypeError` if the argument isn't bytes, such as a string.
    pub fn of(bytes: &Bytes) -> Result<Self, JsValue> {
        let mut hasher = Hasher::default();
        bytes.hash(&mut hasher)?;
        Ok(Self(hasher.finish()))
    }

    /// Returns the content tag: the same for the same bytes.
    #[wasm_bindgen(js_name = contentTag)]
    pub fn content_tag(&self) -> String {
        self.0.content_tag().to_string()
    }

    /// Returns a tag with the number of the write. It changes with every write, even if the bytes don't.
    ///
    /// # Errors
    /// A `TypeError` if the argument isn't a `bigint` of 64 bits, such as `1`.
    #[wasm_bindgen(js_name = versionedTag)]
    pub fn versioned_tag(&self, generation: &Long) -> Result<String, JsValue> {
        let generation = u64::try_from(JsValue::from(generation))
            .map_err(|_| invalid("a generation is a bigint: 1n"))?;
        Ok(self.0.versioned_tag(generation).to_string())
    }

    /// Returns the value of `Repr-Digest` and `Content-Digest` (RFC 9530).
    #[wasm_bindgen(js_name = reprDigest)]
    pub fn repr_digest(&self) -> Option<String> {
        self.0.repr_digest().map(|value| text(value.as_bytes()))
    }
}

/// Hashes bytes incrementally.
#[wasm_bindgen]
#[derive(Debug)]
pub struct ContentHasher(Option<Hasher>);

#[wasm_bindgen]
impl ContentHasher {
    /// Creates a hasher.
    #[wasm_bindgen(constructor)]
    #[expect(
        clippy::new_without_default,
        reason = "it is called from JavaScript only"
    )]
    pub fn new() -> Self {
        Self(Some(Hasher::default()))
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// A `TypeError` if the argument isn't bytes, such as a string, or after `finish`.
    pub fn update(&mut self, bytes: &Bytes) -> Result<(), JsValue> {
        bytes.hash(self.0.as_mut().ok_or_else(finished)?)
    }

    /// Returns the hash of all added bytes, once.
    ///
    /// # Errors
    /// A `TypeError` at the second call.
    pub fn finish(&mut self) -> Result<ContentHash, JsValue> {
        self.0
            .take()
            .map(|hasher| ContentHash(hasher.finish()))
            .ok_or_else(finished)
    }
}

fn finished() -> JsValue {
    invalid("this hasher is finished: create a new ContentHasher for other bytes")
}

impl Bytes {
    /// Adds the bytes to a hash.
    fn hash(&self, hasher: &mut Hasher) -> Result<(), JsValue> {
        let bytes = self.whole()?;
        let length = bytes.length();
        let mut step = vec![0; length.min(STEP) as usize];
        for start in (0..length).step_by(STEP as usize) {
            let from = bytes.subarray(start, start.saturating_add(STEP).min(length));
            let step = &mut step[..from.length() as usize];
            from.copy_to(step);
            hasher.update(step);
        }
        Ok(())
    }

    /// Returns all bytes of a buffer or of a view of one.
    fn whole(&self) -> Result<Uint8Array, JsValue> {
        let buffer = self.dyn_ref::<ArrayBuffer>();
        if buffer.is_none() && !ArrayBuffer::is_view(self) {
            let what = "bytes are an ArrayBuffer or a view of one: of a text, new TextEncoder().encode(text)";
            return Err(invalid(what));
        }
        let number = |name: &str| {
            Ok::<_, JsValue>(
                Reflect::get(self, &name.into())?
                    .as_f64()
                    .unwrap_or_default(),
            )
        };
        if number("byteOffset")? + number("byteLength")? > f64::from(u32::MAX) {
            return Err(invalid(
                "the bytes are in a buffer of more than 4 GiB: hash it in pieces of their own",
            ));
        }
        // All views have these properties.
        let view: &Uint8Array = self.unchecked_ref();
        let octets = match buffer {
            Some(buffer) => Octets::new(buffer, 0, buffer.byte_length()),
            None => Octets::new(&view.buffer(), view.byte_offset(), view.byte_length()),
        };
        Ok(octets?.unchecked_into())
    }
}
