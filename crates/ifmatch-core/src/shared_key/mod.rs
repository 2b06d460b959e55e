//! Signatures of requests to Azure Storage with an account's key: `SharedKey` and `SharedKeyLite`.
//!
//! The gateway verifies them, and `ifmatch-client` signs.

mod header_order;
mod string_to_sign;

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderName;
use sha2::Sha256;
use thiserror::Error;

pub use string_to_sign::{blob, blob_lite, table, table_lite};

/// Date of the request; overrides `Date`.
pub const X_MS_DATE: HeaderName = HeaderName::from_static("x-ms-date");
/// Account of `UseDevelopmentStorage=true` in every Azure SDK.
pub const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
/// Published key of that account, a constant in the source of every Azure SDK. It isn't a secret.
pub const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Key of an account, ready to sign.
///
/// ```
/// use ifmatch_core::shared_key::{Key, blob};
///
/// let request = http::Request::get("http://127.0.0.1/photos/box/cat").header("x-ms-date", "Sat, 21 Nov 2026 00:00:00 GMT");
/// let head = request.body(())?.into_parts().0;
/// let text = blob(&head, "photos").unwrap();
/// let signature = Key::from_base64("c2VjcmV0")?.sign(&text);
/// assert_eq!(signature.len(), 44);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

/// The key of an account is empty or not base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an account's key must be base64, such as from `openssl rand -base64 48`")]
pub struct InvalidKey;

impl Key {
    /// Parses the base64 form.
    ///
    /// # Errors
    /// Fails if the key is empty or not base64.
    ///
    /// ```
    /// use ifmatch_core::shared_key::Key;
    /// assert!(Key::from_base64("c2VjcmV0").is_ok());
    /// assert!(Key::from_base64("").is_err());
    /// ```
    pub fn from_base64(text: &str) -> Result<Self, InvalidKey> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| InvalidKey)?;
        if bytes.is_empty() {
            return Err(InvalidKey);
        }
        Hmac::new_from_slice(&bytes)
            .map(Self)
            .map_err(|_| InvalidKey)
    }

    /// Returns the signature of a text, in base64.
    pub fn sign(&self, text: &str) -> String {
        STANDARD.encode(self.0.clone().chain_update(text).finalize().into_bytes())
    }

    /// Returns `true` if this key signed the text. Takes the same time for every signature.
    pub fn is_signature(&self, text: &str, signature: &[u8]) -> bool {
        self.0
            .clone()
            .chain_update(text)
            .verify_slice(signature)
            .is_ok()
    }
}

/// Without the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").finish_non_exhaustive()
    }
}
