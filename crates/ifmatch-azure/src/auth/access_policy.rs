//! Stored access policies of a container: limits that a shared access signature names (`si`) rather than states, so they can be changed
//! after it was given away, or removed.

use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name;

use super::shared_access::instant;

/// Maximum length of an id, in characters.
const MAX_ID: usize = 64;
/// The letters of all permissions that Azure knows.
const PERMISSIONS: &str = "racwdxyltfmeopi";

/// A stored access policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccessPolicy {
    pub(crate) id: String,
    /// Begin, end and permissions, which a signature must not state if the policy does.
    pub(crate) limits: [Option<String>; 3],
}

/// The names of the limits: the parameter of a signature, and the element of a document.
pub(crate) const LIMITS: [(&str, &str); 3] =
    [("st", "Start"), ("se", "Expiry"), ("sp", "Permission")];

impl AccessPolicy {
    /// Returns the limit that has this name as a parameter of a signature.
    pub(crate) fn limit(&self, parameter: &str) -> Option<&str> {
        let at = LIMITS.iter().position(|(name, _)| *name == parameter)?;
        self.limits[at].as_deref()
    }

    /// Reads the form in which stores keep it.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(',');
        let id = name::decode(parts.next().filter(|id| !id.is_empty())?)
            .ok()?
            .into_owned();
        let limits = LIMITS.map(|_| {
            parts
                .next()
                .filter(|text| !text.is_empty())
                .map(ToOwned::to_owned)
        });
        Some(Self { id, limits })
    }

    /// Returns `true` if Azure would accept the policy.
    pub(crate) fn is_valid(&self) -> bool {
        let [start, end, permissions] = &self.limits;
        let is_time =
            |text: &Option<String>| text.as_deref().is_none_or(|text| instant(text).is_some());
        let known = |text: &String| {
            text.len() <= PERMISSIONS.len()
                && text.chars().all(|letter| PERMISSIONS.contains(letter))
        };
        let id = self.id.chars().count();
        (1..=MAX_ID).contains(&id)
            && is_time(start)
            && is_time(end)
            && permissions.as_ref().is_none_or(known)
    }
}

/// Returns the policies in the fields of a container.
pub(crate) fn of(headers: &BlobHeaders) -> Vec<AccessPolicy> {
    let text = headers
        .policies
        .as_ref()
        .map(FieldText::as_str)
        .unwrap_or_default();
    text.split(';').filter_map(AccessPolicy::parse).collect()
}
