//! The cause of a failed connection, in words that say what to do.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::{CertificateError, InvalidMessage};

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
    /// Returns the innermost cause of an error, which is the most specific.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut innermost = error;
        loop {
            if let Some(error) = innermost.downcast_ref::<rustls::Error>() {
                return Self::of_tls(error);
            }
            // The source of these two is that of the error that they wrap.
            let in_io = innermost.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            let wrapped = in_io.or_else(|| innermost.downcast_ref::<Shared>().map(|shared| &**shared));
            match wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| innermost.source()) {
                Some(cause) => innermost = cause,
                None => break,
            }
        }
        let text = innermost.to_string();
        // Of hyper, which got the alert of a server that expects TLS.
        if text.starts_with("invalid HTTP version") {
            return Self::lasting("the server does not speak HTTP at this port: if it speaks TLS, use https://");
        }
        Self { text, is_lasting: false }
    }

    /// Returns these words in place of an error that no other attempt avoids, and any other error as it is.
    pub fn explain(error: impl Into<Box<dyn Error + Send + Sync>>) -> Box<dyn Error + Send + Sync> {
        let error = error.into();
        let cause = Self::of(&*error);
        if cause.is_lasting { cause.text.into() } else { error }
    }

    /// Describes why the handshake with a client failed, for the log of a server.
    ///
    /// ```
    /// use ifmatch_runtime::Cause;
    /// use rustls::{AlertDescription, Error};
    ///
    /// let error = std::io::Error::other(Error::AlertReceived(AlertDescription::UnknownCA));
    /// assert!(Cause::of_client(&error).starts_with("the client does not trust the certificate"));
    /// ```
    pub fn of_client(error: &io::Error) -> String {
        use rustls::AlertDescription as Alert;
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::InvalidMessage(_)) => "the client does not speak TLS: use https:// in its URL".to_owned(),
            Some(rustls::Error::AlertReceived(alert)) => match alert {
                Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
                    "the client does not trust the certificate: send it with its whole chain, and let the client trust its authority"
                        .to_owned()
                }
                Alert::CertificateExpired => "the client refuses the certificate, which has expired: renew it".to_owned(),
                alert => format!("the client has ended the TLS connection: {alert:?}"),
            },
            Some(rustls::Error::PeerIncompatible(why)) => {
                format!("the client has no version or cipher of TLS in common with this server: {why:?}")
            }
            Some(other) => other.to_string(),
            None => error.to_string(),
        }
    }

    fn of_tls(error: &rustls::Error) -> Self {
        use CertificateError as Certificate;
        let rustls::Error::InvalidCertificate(certificate) = error else {
            return match error {
                rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::lasting(
                    "the server does not speak TLS at this port: use http:// (redis://, etcd://), or the port for TLS",
                ),
                rustls::Error::AlertReceived(alert) => {
                    Self { text: format!("the server has ended the TLS connection: {alert:?}"), is_lasting: false }
                }
                error => Self { text: error.to_string(), is_lasting: false },
            };
        };
        let other;
        Self::lasting(match certificate {
            Certificate::UnknownIssuer => {
                "the server's certificate is not signed by a trusted authority: trust the authority (--ca FILE)"
            }
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                "the server's certificate has expired: renew it, or set the clock of this machine"
            }
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet: set the clock of this machine"
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                "the server's certificate is for another host: use the name in the certificate, or correct it"
            }
            // Of webpki, as text: its error has no other form here.
            Certificate::Other(cause) if cause.to_string().contains("CaUsedAsEndEntity") => {
                "the server's certificate is that of an authority (CA), and cannot be a server's: issue one for the server"
            }
            certificate => {
                other = format!("the server's certificate is not valid: {certificate}");
                &other
            }
        })
    }

    fn lasting(text: &str) -> Self {
        Self { text: text.to_owned(), is_lasting: true }
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
            (CertificateError::BadSignature, "not valid: "),
        ] {
            let cause = refused(certificate);
            assert!(cause.text.contains(text) && cause.is_lasting, "{cause:?}");
        }
    }
}
