//! The parameters of a query.

use ifmatch_blob::name;

use crate::error::AzureError;

/// Query parameters: names in lower case, each at most once, values decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Parses the part after the question mark. A plus is a space: Go's and Rust's clients write one so, and sign a space.
    pub(crate) fn parse(text: &str) -> Result<Self, AzureError> {
        let mut query = Self::default();
        for parameter in name::parameters(text) {
            let (name, value) = parameter
                .map_err(|error| AzureError::bad_request("InvalidUri", error.to_string()))?;
            let name = name.to_ascii_lowercase();
            if query.get(&name).is_some() {
                return Err(AzureError::invalid_parameter(&name, "must not be repeated"));
            }
            query.0.push((name, value.into_owned()));
        }
        Ok(query)
    }

    /// Removes parameters by name.
    pub(crate) fn remove(&mut self, is_removed: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| !is_removed(name));
    }

    /// Returns the value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns `true` if a name or a value has a control character.
    pub(crate) fn has_control(&self) -> bool {
        self.0.iter().any(|(name, value)| {
            name.contains(char::is_control) || value.contains(char::is_control)
        })
    }

    /// Returns the names of all parameters.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}
