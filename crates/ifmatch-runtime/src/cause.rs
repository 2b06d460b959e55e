//! The cause of a failed connection, in words that say what to do.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::{CertificateError, InvalidMessage};

/// An error that several handles share.
type Shared = Arc<dyn Error + Send + Sync>;

/// The cause of a failed connection.
///
/// ```
/// use ifmatch_runtime::Cause;
///
/// let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
/// let cause = Cause::of(&error);
/// assert_eq!((cause.text.as_str(), cause.is_lasting), ("connection reset", false));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// What is wrong, and what to do about it.
    pub text: String,
    /// `true` if no other attempt can succeed: the certificate isn't to be trusted, or the server speaks another protocol.
    pub is_lasting: bool,
}

impl Cause {
    /// Returns the innermost cause of an error of an HTTP client, which is the most specific.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        Self::naming(error, "http://", "--ca FILE")
    }

    /// Returns the innermost cause. `plain` is what to use for a server without TLS, such as `redis://`, and `trust` is how to trust
    /// an authority, such as `--ca FILE`.
    pub fn naming(error: &(dyn Error + 'static), plain: &str, trust: &str) -> Self {
        let mut innermost = error;
        loop {
            if let Some(error) = innermost.downcast_ref::<rustls::Error>() {
                return Self::of_tls(error, plain, trust);
            }
            // The `source` of these two skips the error that they wrap.
            let in_io = innermost
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            let wrapped =
                in_io.or_else(|| innermost.downcast_ref::<Shared>().map(|shared| &**shared));
            match wrapped
                .map(|wrapped| wrapped as &(dyn Error + 'static))
                .or_else(|| innermost.source())
            {
                Some(cause) => innermost = cause,
                None => break,
            }
        }
        let text = innermost.to_string();
        // The text of hyper, to which a server that expects TLS has sent an alert.
        if text.starts_with("invalid HTTP version") {
            return Self::lasting(
                "the server doesn't speak HTTP at this port. If it speaks TLS, use https://",
            );
        }
        Self {
            text,
            is_lasting: false,
        }
    }

    /// Returns these words in place of an error that no other attempt avoids, and any other error as it is. `plain` and
    /// `trust` mean the same as in [`naming`](Self::naming).
    pub fn explain(
        error: impl Into<Box<dyn Error + Send + Sync>>,
        plain: &str,
        trust: &str,
    ) -> Box<dyn Error + Send + Sync> {
        let error = error.into();
        let cause = Self::naming(&*error, plain, trust);
        if cause.is_lasting {
            cause.text.into()
        } else {
            error
        }
    }

    /// Describes why the handshake with a client failed, for the log of a server.
    ///
    /// ```
    /// use ifmatch_runtime::Cause;
    /// use rustls::{AlertDescription, Error};
    ///
    /// let error = std::io::Error::other(Error::AlertReceived(AlertDescription::UnknownCA));
    /// assert!(Cause::of_client(&error).starts_with("the client doesn't trust the certificate"));
    /// ```
    pub fn of_client(error: &io::Error) -> String {
        use rustls::AlertDescription as Alert;
        let inner = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::InvalidMessage(_)) => "the client doesn't speak TLS: use https:// in its URL".to_owned(),
            Some(rustls::Error::AlertReceived(alert)) => match alert {
                Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
                    "the client doesn't trust the certificate: send the whole chain, and let the client trust its authority"
                        .to_owned()
                }
                Alert::CertificateExpired => "the client refuses the certificate, which has expired: renew it".to_owned(),
                alert => format!("the client ended the TLS handshake ({alert:?})"),
            },
            Some(rustls::Error::PeerIncompatible(why)) => {
                format!("the client and this server have no TLS version or cipher in common ({why:?})")
            }
            Some(other) => other.to_string(),
            None => error.to_string(),
        }
    }

    fn of_tls(error: &rustls::Error, plain: &str, trust: &str) -> Self {
        use CertificateError as Certificate;
        let rustls::Error::InvalidCertificate(certificate) = error else {
            return match error {
                rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::lasting(
                    &format!("the server doesn't speak TLS at this port. Use {plain}"),
                ),
                rustls::Error::AlertReceived(alert) => Self {
                    text: format!("the server ended the TLS handshake ({alert:?})"),
                    is_lasting: false,
                },
                error => Self {
                    text: error.to_string(),
                    is_lasting: false,
                },
            };
        };
        let other;
        Self::lasting(match certificate {
            // The wrong authority may have the name of the right one.
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                other = format!(
                    "the server's certificate isn't signed by a trusted authority. Trust its authority with {trust}"
                );
                &other
            }
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                "the server's certificate has expired. Renew it, or correct this machine's clock"
            }
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                "the server's certificate isn't valid yet. Correct this machine's clock"
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                "the server's certificate is for another host. Use the name in the certificate, or reissue it for this one"
            }
            // webpki's error, which is known here by its text only.
            Certificate::Other(cause) if cause.to_string().contains("CaUsedAsEndEntity") => {
                "the server's certificate is a CA certificate, which can't be a server's. With `openssl req -x509`, add -addext \
                 basicConstraints=critical,CA:FALSE"
            }
            certificate => {
                other = format!("the server's certificate isn't valid: {certificate}");
                &other
            }
        })
    }

    fn lasting(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            is_lasting: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_refused_is_described_however_deep_it_is() {
        let refused = |certificate| {
            let error = rustls::Error::InvalidCertificate(certificate);
            let inner: Shared = Arc::new(io::Error::new(io::ErrorKind::InvalidData, error));
            Cause::of(&io::Error::other(inner))
        };
        for (certificate, text) in [
            (CertificateError::UnknownIssuer, "--ca"),
            (CertificateError::Expired, "has expired"),
            (CertificateError::NotValidForName, "another host"),
            (CertificateError::BadSignature, "--ca"),
            (CertificateError::Revoked, "isn't valid: "),
        ] {
            let cause = refused(certificate);
            assert!(cause.text.contains(text) && cause.is_lasting, "{cause:?}");
        }
    }
}
