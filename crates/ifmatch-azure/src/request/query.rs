//! The query parameters of a request.

use crate::error::AzureError;
use ifmatch_blob::name;

/// Query parameters: names in lower case, each at most once, values decoded.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part after the question mark. A plus is a space: Go's and Rust's clients write one so, and sign a space.
    pub(super) fn parse(text: &str) -> Result<Self, AzureError> {
        let mut query = Self::default();
        for parameter in text.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let decoded = |text| {
                name::decode_parameter(text).map_err(|error| AzureError::bad_request("InvalidUri", error.to_string()))
            };
            let (name, value) = (decoded(name)?.to_ascii_lowercase(), decoded(value)?.into_owned());
            if query.get(&name).is_some() {
                return Err(AzureError::invalid_parameter(&name, "must not be repeated"));
            }
            query.0.push((name, value));
        }
        Ok(query)
    }

    /// Removes parameters by name.
    pub(super) fn remove(&mut self, is_removed: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| !is_removed(name));
    }

    /// Returns the value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the names of all parameters.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}
