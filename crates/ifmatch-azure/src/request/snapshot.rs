//! Snapshots, as requests name them.

use std::collections::BTreeMap;
use std::fmt;

use ifmatch_blob::headers::FieldText;
use time::OffsetDateTime;

use crate::auth::shared_access::instant;
use crate::error::AzureError;
use crate::query::QueryParameters;

/// The time of a snapshot: the microseconds since 1970, and the tenths of a microsecond, Azure's seventh digit.
///
/// This service's snapshots have no tenths. A client may still ask for another service's, which then isn't found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SnapshotTime(pub(crate) u64, u8);

impl SnapshotTime {
    /// Parses the form of responses, which no other text has.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let tenths = text
            .strip_suffix('Z')?
            .bytes()
            .next_back()?
            .checked_sub(b'0')
            .filter(|digit| *digit < 10)?;
        instant(text)
            .map(|time| Self(time.micros(), tenths))
            .filter(|time| time.to_string() == text)
    }

    /// Returns the time at a number of microseconds since 1970, or `None` after the year 9999.
    pub(crate) fn of_micros(micros: u64) -> Option<Self> {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000).ok()?;
        Some(Self(micros, 0))
    }

    /// Returns the end of the name under which a snapshot is stored. It sorts by time.
    pub(crate) fn name(self) -> String {
        let Self(micros, tenths) = self;
        if tenths == 0 {
            format!("{micros:016x}")
        } else {
            format!("{micros:016x}.{tenths}")
        }
    }
}

/// Formats the time with seven digits of a second, as Azure does.
impl fmt::Display for SnapshotTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1000)
            .map_err(|_| fmt::Error)?;
        let (date, hour, minute, second, micro) = (
            time.date(),
            time.hour(),
            time.minute(),
            time.second(),
            time.microsecond(),
        );
        write!(
            f,
            "{date}T{hour:02}:{minute:02}:{second:02}.{micro:06}{}Z",
            self.1
        )
    }
}

/// How a deletion treats the blob's snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotDeletion {
    /// Deletes the blob unless it has snapshots.
    Bare,
    /// Deletes the blob and its snapshots.
    Include,
    /// Deletes the snapshots, and keeps the blob.
    Only,
    /// Deletes this snapshot.
    One(SnapshotTime),
}

/// The metadata of a snapshot, if it has its own.
pub(crate) type OwnMetadata = Option<BTreeMap<Box<str>, FieldText>>;

impl QueryParameters {
    /// Returns the snapshot that the query names.
    pub(crate) fn snapshot(&self) -> Result<Option<SnapshotTime>, AzureError> {
        let text = self.get("snapshot");
        let malformed =
            || AzureError::invalid_parameter("snapshot", "must be the x-ms-snapshot of a response");
        text.map(|text| SnapshotTime::parse(text).ok_or_else(malformed))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_one_form() {
        let text = "2026-11-28T19:00:05.0123450Z";
        assert_eq!(
            SnapshotTime::parse(text)
                .map(|time| time.to_string())
                .as_deref(),
            Some(text)
        );
        let foreign = "2026-11-28T19:00:05.0123458Z";
        let time = SnapshotTime::parse(foreign).expect("a time of a service with more digits");
        assert_eq!(
            (time.to_string().as_str(), time.name().contains('.')),
            (foreign, true),
            "no snapshot has its name"
        );
        for other in [
            "2026-11-28T19:00:05Z",
            "2026-11-28T19:00:05.012345Z",
            "2026-11-28T19:00:05.01234510Z",
            "now",
            "",
        ] {
            assert_eq!(SnapshotTime::parse(other), None, "{other}");
        }
    }
}
