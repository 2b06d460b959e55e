//! The URL of the folder with the records.

use std::fmt;
use std::str::FromStr;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};
use ifmatch_register::{ConnectError, ConnectErrorKind};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Characters of records' names that are percent-encoded, since some servers take them for others in a path.
const ENCODED: &AsciiSet = &CONTROLS.add(b'+').add(b'=');

/// The URL of the folder with the records, and the token that the server asks for.
///
/// ```
/// use ifmatch_http_register::Address;
///
/// let address: Address = "http://10.0.0.1:10000/records/notes".parse()?;
/// assert_eq!(address.to_string(), "http://10.0.0.1:10000/records/notes/");
/// assert!("http://10.0.0.1:10000".parse::<Address>().is_err());
/// # Ok::<(), ifmatch_http_register::ConnectError>(())
/// ```
#[derive(Clone)]
pub struct Address {
    scheme: Scheme,
    authority: Authority,
    /// Begins and ends with a slash.
    folder: String,
    authorization: Option<HeaderValue>,
}

impl Address {
    /// Sets the token for `Authorization: Bearer …` (RFC 6750 §2.1).
    ///
    /// # Errors
    /// [`ConnectErrorKind::Denied`] if a header field can't contain it.
    pub fn with_token(self, token: &str) -> Result<Self, ConnectError> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            ConnectError::new(
                ConnectErrorKind::Denied,
                "the register's token has characters that no header field has",
            )
        })?;
        value.set_sensitive(true);
        Ok(Self {
            authorization: Some(value),
            ..self
        })
    }

    /// Returns the value of `Authorization`, if there is a token.
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Returns the URL of an object in the folder.
    pub(crate) fn object(&self, name: &str) -> Result<Uri, http::Error> {
        self.uri(&format!(
            "{}{}",
            self.folder,
            utf8_percent_encode(name, ENCODED)
        ))
    }

    /// Returns the URL of a page of names in the container, in the gateway's plain dialect.
    pub(crate) fn listing(&self, after: Option<&str>) -> Result<Uri, http::Error> {
        let (container, folder) = self.container();
        let query =
            |text: &str| utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        let after = after
            .map(|after| format!("&after={}", query(after)))
            .unwrap_or_default();
        self.uri(&format!("/{container}?prefix={}{after}", query(folder)))
    }

    /// Returns the name of the container, and the prefix of the names of its objects that are in the folder.
    pub(crate) fn container(&self) -> (&str, &str) {
        let path = self.folder.trim_start_matches('/');
        path.split_once('/').unwrap_or((path, ""))
    }

    /// Returns the URL of a path with its query, at this server.
    fn uri(&self, path: &str) -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
    }
}

impl FromStr for Address {
    type Err = ConnectError;

    fn from_str(url: &str) -> Result<Self, ConnectError> {
        let parts = || {
            let uri: Uri = url.trim_end_matches('/').parse().ok()?;
            let is_http = [Scheme::HTTP, Scheme::HTTPS].contains(uri.scheme()?);
            let is_plain = |segment: &str| {
                let is_safe =
                    |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
                !["", ".", ".."].contains(&segment) && segment.bytes().all(is_safe)
            };
            let (authority, path) = (uri.authority()?, uri.path().strip_prefix('/')?);
            let is_valid = is_http && uri.query().is_none() && !authority.as_str().contains('@');
            (is_valid && path.split('/').all(is_plain) && !url.contains('#')).then(|| Self {
                scheme: uri.scheme().cloned().unwrap_or(Scheme::HTTP),
                authority: authority.clone(),
                folder: format!("/{path}/"),
                authorization: None,
            })
        };
        parts().ok_or_else(|| {
            let form = "not the URL of a register by HTTP. Use http://host[:port]/container[/folder…], or https://…, with letters, \
                        digits and ._- in the path; a token isn't part of the URL";
            ConnectError::new(ConnectErrorKind::Url, form)
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.folder)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_url_of_a_folder_is_an_address() {
        for url in [
            "",
            "localhost",
            "/records",
            "ftp://h/records",
            "http://h",
            "http://h/",
            "http://user:secret@h/records",
            "http://h/records?x=y",
            "http://h/records#x",
            "http://h/a//b",
            "http://h/a/../b",
            "http://h/a%20b",
        ] {
            let error = url.parse::<Address>().expect_err(url);
            assert!(
                error.kind() == ConnectErrorKind::Url && !error.to_string().contains("secret"),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        let address: Address = "https://h/records".parse().expect("an address");
        let address = address.with_token("secret").expect("a token");
        assert!(!format!("{address:?} {:?}", address.authorization()).contains("secret"));
        assert!(address.with_token("a\nb").is_err());
    }

    #[test]
    fn names_are_encoded_in_paths_and_folders_in_queries() {
        let address: Address = "http://h:1/c/a/b".parse().expect("an address");
        assert_eq!(
            address.object("ra=2f+0").expect("a URL"),
            "http://h:1/c/a/b/ra%3D2f%2B0"
        );
        assert_eq!(
            address.listing(Some("a/b/r=")).expect("a URL"),
            "http://h:1/c?prefix=a%2Fb%2F&after=a%2Fb%2Fr%3D"
        );
        let whole: Address = "http://h/c/".parse().expect("an address");
        assert_eq!(whole.container(), ("c", ""));
    }
}
