//! The place on a gateway that a command names by a URL.

use ifmatch_blob::name::{BlobName, BlobPath, ContainerName, decode};
use url::Url;

use crate::error::Error;

/// A gateway, a container of it, or a folder of that container.
pub(crate) struct Location {
    /// The gateway's URL, without a path.
    pub(crate) server: Url,
    /// The container, or `None` for all.
    pub(crate) container: Option<ContainerName>,
    /// Empty, or the first segments of names, with a slash at the end.
    pub(crate) prefix: String,
}

impl Location {
    /// Parses a URL.
    ///
    /// # Errors
    /// Fails if it is not a URL of a gateway, or its path is not a valid name.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::usage(format!("{text}: {why}, such as http://127.0.0.1:10000/docs"));
        let mut server = Url::parse(text).map_err(|_| wrong("write the URL of a container"))?;
        if !matches!(server.scheme(), "http" | "https") || server.query().is_some() || server.fragment().is_some() {
            return Err(wrong("write an http or https URL without a query"));
        }
        let path = server.path().trim_matches('/').to_owned();
        server.set_path("");
        let (container, prefix) = path.split_once('/').unwrap_or((&path, ""));
        let invalid = |error: &dyn std::fmt::Display| wrong(&error.to_string());
        let container = match container {
            "" => None,
            container => Some(ContainerName::new(container).map_err(|error| invalid(&error))?),
        };
        let prefix = match decode(prefix).map_err(|error| invalid(&error))? {
            prefix if prefix.is_empty() => String::new(),
            prefix => format!("{}/", BlobName::new(&prefix).map_err(|error| invalid(&error))?),
        };
        Ok(Self { server, container, prefix })
    }

    /// Returns the container, which the command needs.
    ///
    /// # Errors
    /// Fails if the URL has no path.
    pub(crate) fn container(&self) -> Result<&ContainerName, Error> {
        let missing = || Error::usage(format!("{}: add the name of a container, such as {0}docs", self.server));
        self.container.as_ref().ok_or_else(missing)
    }

    /// Returns the path of the blob with this name below the location.
    ///
    /// # Errors
    /// States the rule for names that it breaks.
    pub(crate) fn blob(&self, container: &ContainerName, name: &str) -> Result<BlobPath, String> {
        let name = BlobName::new(&format!("{}{name}", self.prefix)).map_err(|error| error.to_string())?;
        Ok(BlobPath { container: container.clone(), name })
    }
}

#[cfg(test)]
mod tests {
    use super::{ContainerName, Location};

    #[test]
    fn a_location_is_a_gateway_a_container_or_a_folder_of_it() {
        for (text, container, prefix) in [
            ("http://127.0.0.1:1", None, ""),
            ("https://a.example/docs/", Some("docs"), ""),
            ("https://a.example/docs/2026/a%20b", Some("docs"), "2026/a b/"),
        ] {
            let location = Location::parse(text).unwrap();
            assert_eq!(location.container.as_ref().map(ContainerName::as_str), container, "{text}");
            assert_eq!(location.prefix, prefix, "{text}");
        }
        for wrong in ["docs", "ftp://a.example/docs", "http://a.example/docs?x", "http://a.example/-/leases"] {
            assert!(Location::parse(wrong).is_err(), "{wrong}");
        }
    }
}
