//! The time for which a certificate of the server is valid, and what clients refuse it for.

use std::path::Path;
use std::time::Duration;

use ifmatch_core::date::HttpDate;
use ifmatch_runtime::{Clock, SystemClock};
use rustls::sign::CertifiedKey;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::{BasicConstraints, SubjectAltName};

use crate::metrics;

/// Time before the end of a certificate at which it should have been renewed, unless a third of its lifetime is less.
const SOON: Duration = Duration::from_hours(14 * 24);

/// The time for which the chain of certificates in a file is valid, since 1970, and whether it fits a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validity {
    file: String,
    begin: Duration,
    end: Duration,
    unfit: Option<&'static str>,
}

impl Validity {
    /// Returns the time for which all certificates of a chain are valid, or `None` if none of them can be read.
    pub fn of(key: &CertifiedKey, file: &Path) -> Option<Self> {
        let certificates = || {
            key.cert
                .iter()
                .filter_map(|der| Certificate::from_der(der).ok())
        };
        let unfit = certificates().next().and_then(|own| unfit(&own));
        let each = certificates().map(|certificate| {
            let validity = certificate.tbs_certificate.validity;
            (
                validity.not_before.to_unix_duration(),
                validity.not_after.to_unix_duration(),
            )
        });
        let (begin, end) = each.reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)))?;
        Some(Self {
            file: file.display().to_string(),
            begin,
            end,
            unfit,
        })
    }

    /// Publishes the end as a metric, and logs it, or a warning if the certificate has a problem.
    pub(crate) fn announce(&self) {
        metrics::set_certificate_end(&self.file, self.end);
        if let Some(problem) = self.problem() {
            tracing::warn!("{problem}");
        } else {
            tracing::info!(
                "the certificate in {} expires on {}",
                self.file,
                date(self.end)
            );
        }
    }

    /// Sets the metric of a certificate that is no longer used to zero.
    pub(crate) fn withdraw(&self) {
        metrics::set_certificate_end(&self.file, Duration::ZERO);
    }

    /// Returns the file, when the certificate should have been renewed, and when it ends, since 1970.
    pub(crate) fn end(&self) -> (String, Duration, Duration) {
        (self.file.clone(), self.renewal(), self.end)
    }

    /// Returns when the certificate should have been renewed, since 1970.
    fn renewal(&self) -> Duration {
        let lifetime = self.end.saturating_sub(self.begin);
        self.end.saturating_sub(SOON.min(lifetime / 3))
    }

    /// Returns what is wrong with the certificate now, and what to do.
    pub fn problem(&self) -> Option<String> {
        self.problem_at(Duration::from_micros(SystemClock.wall().micros()))
    }

    /// Returns what is wrong at `now`, since 1970.
    fn problem_at(&self, now: Duration) -> Option<String> {
        let problem = if now >= self.end {
            format!("expired on {}: clients refuse it", date(self.end))
        } else if now < self.begin {
            format!(
                "is valid from {} on only: clients refuse it",
                date(self.begin)
            )
        } else if now >= self.renewal() {
            format!("expires on {}", date(self.end))
        } else {
            return self
                .unfit
                .map(|why| format!("the certificate in {} {why}", self.file));
        };
        Some(format!(
            "the certificate in {} {problem}; renew it and send SIGHUP",
            self.file
        ))
    }
}

/// Returns why clients refuse a server's certificate, whatever they trust: what plain `openssl req -x509` makes.
fn unfit(certificate: &Certificate) -> Option<&'static str> {
    let extensions = &certificate.tbs_certificate;
    let is_authority = extensions
        .get::<BasicConstraints>()
        .ok()
        .flatten()
        .is_some_and(|(_, constraints)| constraints.ca);
    if is_authority {
        return Some(
            "is a CA certificate, which many clients, this program's commands among them, refuse as a server's. With `openssl req \
             -x509`, add -addext basicConstraints=critical,CA:FALSE",
        );
    }
    let has_names = extensions.get::<SubjectAltName>().ok().flatten().is_some();
    (!has_names).then_some(
        "has no subjectAltName, without which clients refuse it. With `openssl req -x509`, add -addext \
         subjectAltName=DNS:NAME",
    )
}

fn date(time: Duration) -> HttpDate {
    HttpDate::from_unix(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_reported_from_two_weeks_or_a_third_of_the_lifetime_before_the_end() {
        const DAY: Duration = Duration::from_hours(24);
        for (days, now, expected) in [
            (90, 75, None),
            (90, 76, Some("expires on ")),
            (90, 90, Some("expired on ")),
            (6, 3, None),
            (6, 4, Some("expires on ")),
        ] {
            let validity = Validity {
                file: "a".into(),
                begin: DAY,
                end: DAY * (1 + days),
                unfit: None,
            };
            let problem = validity.problem_at(DAY * (1 + now));
            let is_expected = match expected {
                None => problem.is_none(),
                Some(part) => problem
                    .as_ref()
                    .is_some_and(|problem| problem.contains(part)),
            };
            assert!(is_expected, "{now} of {days} days: {problem:?}");
        }
        let early = Validity {
            file: "a".into(),
            begin: DAY * 2,
            end: DAY * 9,
            unfit: None,
        }
        .problem_at(DAY)
        .unwrap();
        assert!(early.contains("is valid from Sat, 03 Jan 1970"), "{early}");
    }
}
