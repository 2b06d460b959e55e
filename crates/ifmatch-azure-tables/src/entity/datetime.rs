//! `Edm.DateTime`: a time in ticks of 100 nanoseconds.

use std::fmt;

use ifmatch_core::date::Timestamp;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A time between the years 1 and 9999, in ticks of 100 nanoseconds since 1970. Formatted in UTC with as many
/// fractional digits as needed, or with all seven in the alternate form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DateTime(i64);

/// Nanoseconds in a tick.
const NANOS_IN_TICK: u32 = 100;

impl DateTime {
    /// Parses an RFC 3339 date; without an offset, it's in UTC. Drops digits beyond the seventh.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (_, time) = text.split_once(['T', 't'])?;
        let has_offset = time.ends_with(['Z', 'z']) || time.contains(['+', '-']);
        let zone = if has_offset { "" } else { "Z" };
        let moment = OffsetDateTime::parse(&format!("{text}{zone}"), &Rfc3339).ok()?;
        Self::from_nanos(moment.unix_timestamp_nanos())
    }

    /// Converts a timestamp. Returns `None` after year 9999.
    pub(crate) fn of(timestamp: Timestamp) -> Option<Self> {
        Self::from_nanos(i128::from(timestamp.micros()) * 1000)
    }

    fn from_nanos(nanos: i128) -> Option<Self> {
        let ticks = i64::try_from(nanos.div_euclid(NANOS_IN_TICK.into())).ok()?;
        Self(ticks).moment().map(|_| Self(ticks))
    }

    /// Returns the time, if its year is allowed.
    fn moment(self) -> Option<OffsetDateTime> {
        let nanos = i128::from(self.0) * i128::from(NANOS_IN_TICK);
        let moment = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()?;
        (1..=9999).contains(&moment.year()).then_some(moment)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = self.moment().ok_or(fmt::Error)?;
        let (year, month, day) = (moment.year(), u8::from(moment.month()), moment.day());
        let (hour, minute, second) = moment.to_hms();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        let digits = format!("{:07}", moment.nanosecond() / NANOS_IN_TICK);
        let digits = if f.alternate() {
            &digits
        } else {
            digits.trim_end_matches('0')
        };
        if digits.is_empty() {
            f.write_str("Z")
        } else {
            write!(f, ".{digits}Z")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_in_utc_without_trailing_zeros() {
        let rows = [
            ("2026-11-21T12:30:15Z", "2026-11-21T12:30:15Z"),
            ("2026-11-21T12:30:15.000000Z", "2026-11-21T12:30:15Z"),
            ("2026-11-21T12:30:15.1200000Z", "2026-11-21T12:30:15.12Z"),
            (
                "2026-11-21T12:30:15.123456789Z",
                "2026-11-21T12:30:15.1234567Z",
            ),
            ("2008-07-10T00:00:00", "2008-07-10T00:00:00Z"),
            ("2026-11-21T12:30:15+02:00", "2026-11-21T10:30:15Z"),
            ("1601-01-01T00:00:00Z", "1601-01-01T00:00:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            (
                "9999-12-31T23:59:59.9999999Z",
                "9999-12-31T23:59:59.9999999Z",
            ),
            (
                "1969-12-31T23:59:59.9999999Z",
                "1969-12-31T23:59:59.9999999Z",
            ),
        ];
        for (text, written) in rows {
            assert_eq!(
                DateTime::parse(text)
                    .map(|moment| moment.to_string())
                    .as_deref(),
                Some(written),
                "{text}"
            );
        }
    }

    #[test]
    fn rejects_invalid_times() {
        for text in [
            "",
            "2026-11-21",
            "2026-13-01T00:00:00Z",
            "T",
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
        ] {
            assert_eq!(DateTime::parse(text), None, "{text}");
        }
        assert_eq!(DateTime::of(Timestamp::from_micros(u64::MAX)), None);
    }
}
