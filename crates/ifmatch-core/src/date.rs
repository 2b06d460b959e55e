//! HTTP dates, and timestamps in microseconds.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::fields;
use crate::text::header_value;

/// A date in a header field (RFC 9110 §5.6.7): whole seconds since 1970, from the year 0 to 9999.
///
/// ```
/// use ifmatch_core::date::HttpDate;
///
/// let date = HttpDate::parse(b"Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
/// assert_eq!(date.unix(), 784_111_777);
/// assert_eq!(date, HttpDate::parse(b"Sunday, 06-Nov-94 08:49:37 GMT").unwrap());
/// assert_eq!(date, HttpDate::parse(b"Sun Nov  6 08:49:37 1994").unwrap());
/// assert_eq!(date.to_string(), "Sun, 06 Nov 1994 08:49:37 GMT");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "i64", into = "i64")]
pub struct HttpDate(i64);

impl HttpDate {
    /// The first second of the year 0.
    pub const MIN: Self = Self(-62_167_219_200);
    /// The last second of the year 9999.
    pub const MAX: Self = Self(253_402_300_799);

    /// Parses any of the three formats. Returns `None` for anything else, which must be ignored.
    ///
    /// Accepts years before 1970: a precondition with such a date is early, not malformed. Two-digit years represent 1970 to
    /// 2069. A leap second counts as the first second of the next minute.
    ///
    /// ```
    /// use ifmatch_core::date::HttpDate;
    ///
    /// assert_eq!(HttpDate::parse(b"Wed, 31 Dec 1969 23:59:59 GMT").unwrap().unix(), -1);
    /// assert_eq!(HttpDate::parse(b"Mon, 06 Nov 1994 08:49:37 GMT"), None); // it was a Sunday
    /// ```
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut text = [0; LONGEST];
        let text = text.get_mut(..bytes.len())?;
        text.copy_from_slice(bytes);
        let cycles = lift_year(text);
        let leap = lower_leap_second(text);
        let date = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
        let elapsed = date.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let seconds = i64::try_from(elapsed.as_secs()).ok()?;
        Some(Self::from_unix(seconds - cycles * CYCLE + i64::from(leap)))
    }

    /// Reads a header field. Returns `None` if it is absent, malformed or repeated, in which case it must be ignored (RFC
    /// 9110 §13.1.3, §13.1.4).
    ///
    /// ```
    /// use http::{header, HeaderMap, HeaderValue};
    /// use ifmatch_core::date::HttpDate;
    ///
    /// let mut headers = HeaderMap::new();
    /// let value = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:01 GMT");
    /// headers.append(header::IF_MODIFIED_SINCE, value.clone());
    /// let date = HttpDate::from_headers(&headers, header::IF_MODIFIED_SINCE);
    /// assert_eq!(date, Some(HttpDate::from_unix(1)));
    /// headers.append(header::IF_MODIFIED_SINCE, value);
    /// assert_eq!(HttpDate::from_headers(&headers, header::IF_MODIFIED_SINCE), None);
    /// ```
    pub fn from_headers(headers: &HeaderMap, name: HeaderName) -> Option<Self> {
        let mut lines = fields::lines(headers, name);
        match (lines.next(), lines.next()) {
            (Some(line), None) => Self::parse(line.as_bytes()),
            _ => None,
        }
    }

    /// Creates a date from seconds since 1970, which may be negative. Saturates at [`MIN`](Self::MIN) and
    /// [`MAX`](Self::MAX).
    ///
    /// ```
    /// # use ifmatch_core::date::HttpDate;
    /// assert_eq!(HttpDate::from_unix(0).to_string(), "Thu, 01 Jan 1970 00:00:00 GMT");
    /// assert_eq!(HttpDate::from_unix(i64::MAX), HttpDate::MAX);
    /// ```
    pub const fn from_unix(seconds: i64) -> Self {
        if seconds < Self::MIN.0 {
            Self::MIN
        } else if seconds > Self::MAX.0 {
            Self::MAX
        } else {
            Self(seconds)
        }
    }

    /// Returns the seconds since 1970.
    pub const fn unix(self) -> i64 {
        self.0
    }

    /// Returns the preceding second, or [`MIN`](Self::MIN) for the first one.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self::from_unix(self.0 - 1)
    }

    /// Returns the following second, or [`MAX`](Self::MAX) for the last one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::from_unix(self.0.saturating_add(1))
    }

    /// Returns `true` if this second has begun. A `Last-Modified` must not be sent earlier: see
    /// [`Timestamp::last_modified`].
    ///
    /// ```
    /// use ifmatch_core::date::{HttpDate, Timestamp};
    ///
    /// let date = HttpDate::from_unix(2);
    /// assert!(!date.has_come(Timestamp::from_micros(1_999_999)));
    /// assert!(date.has_come(Timestamp::from_micros(2_000_000)));
    /// ```
    pub const fn has_come(self, now: Timestamp) -> bool {
        self.0 <= now.whole_seconds()
    }

    /// Returns `true` if this second has ended. Until then, a resource may change again without a new date, so the date
    /// is a weak validator (RFC 9110 §8.8.2.2).
    ///
    /// ```
    /// use ifmatch_core::date::{HttpDate, Timestamp};
    ///
    /// let date = HttpDate::from_unix(2);
    /// assert!(!date.has_ended(Timestamp::from_micros(2_999_999)));
    /// assert!(date.has_ended(Timestamp::from_micros(3_000_000)));
    /// ```
    pub const fn has_ended(self, now: Timestamp) -> bool {
        self.0 < now.whole_seconds()
    }

    /// Returns the value of a header field, in the preferred format.
    pub fn to_header(self) -> HeaderValue {
        header_value(self.text())
    }

    fn text(self) -> String {
        if self.0 >= 0 {
            return httpdate::fmt_http_date(
                SystemTime::UNIX_EPOCH + Duration::from_secs(self.0.unsigned_abs()),
            );
        }
        let mut text = Self(self.0 + LIFT * CYCLE).text();
        if let Ok(year) = text[YEAR].parse::<i64>() {
            text.replace_range(YEAR, &format!("{:04}", year - LIFT * YEARS));
        }
        text
    }
}

/// Formats the date in the preferred format, as in `Sun, 06 Nov 1994 08:49:37 GMT`.
impl fmt::Display for HttpDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl From<i64> for HttpDate {
    fn from(seconds: i64) -> Self {
        Self::from_unix(seconds)
    }
}

impl From<HttpDate> for i64 {
    fn from(date: HttpDate) -> Self {
        date.unix()
    }
}

/// A point in time, in microseconds since 1970.
///
/// ```
/// use std::time::Duration;
/// use ifmatch_core::date::Timestamp;
///
/// let now = Timestamp::from_micros(1_000_000);
/// let later = now.saturating_add(Duration::from_millis(5));
/// assert!(later > now);
/// assert_eq!(now.until(later), Duration::from_millis(5));
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Creates a timestamp from microseconds since 1970.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since 1970.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Returns the time after `duration`, saturating.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    /// Returns the duration until `later`, or zero if that is past.
    ///
    /// ```
    /// # use ifmatch_core::date::Timestamp;
    /// # use std::time::Duration;
    /// let (one, two) = (Timestamp::from_micros(1), Timestamp::from_micros(2));
    /// assert_eq!(one.until(two), Duration::from_micros(1));
    /// assert_eq!(two.until(one), Duration::ZERO);
    /// ```
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }

    /// Returns the `Last-Modified` of a state created at this time: the next whole second, even for a time that is a whole
    /// second.
    ///
    /// Don't send it before that second [has come](HttpDate::has_come): a response must not be older than its content.
    /// Each version of a record gets a later date than the one before, even if the clock goes back: see
    /// [`Version::last_modified`](crate::record::Version::last_modified).
    ///
    /// ```
    /// use ifmatch_core::date::{HttpDate, Timestamp};
    ///
    /// assert_eq!(Timestamp::from_micros(1_999_999).last_modified(), HttpDate::from_unix(2));
    /// assert_eq!(Timestamp::from_micros(2_000_000).last_modified(), HttpDate::from_unix(3));
    /// ```
    pub const fn last_modified(self) -> HttpDate {
        HttpDate::from_unix(self.whole_seconds() + 1)
    }

    /// Returns the whole seconds since 1970.
    const fn whole_seconds(self) -> i64 {
        // The quotient is below 2^45.
        (self.0 / 1_000_000).cast_signed()
    }
}

/// The Gregorian calendar repeats after 400 years, the days of the week included.
const YEARS: i64 = 400;
/// Seconds in 400 years.
const CYCLE: i64 = 146_097 * 86_400;
/// Number of cycles that move every year before 1970 into the range of [`SystemTime`] on all platforms.
const LIFT: i64 = 5;
/// Position of the year in the preferred format.
const YEAR: Range<usize> = 12..16;
/// Length of the longest date: `Wednesday, 06-Nov-94 08:49:37 GMT`.
const LONGEST: usize = 33;

/// Moves a four-digit year before 1970 by [`LIFT`] cycles, in place. Returns the number of cycles.
fn lift_year(text: &mut [u8]) -> i64 {
    // The lengths of the preferred format, and of asctime's.
    let at = match text.len() {
        29 => YEAR,
        24 => 20..24,
        _ => return 0,
    };
    let year = std::str::from_utf8(&text[at.clone()])
        .ok()
        .and_then(|year| year.parse::<u16>().ok());
    match year {
        Some(year @ ..1970) if text[at.start].is_ascii_digit() => {
            text[at].copy_from_slice(format!("{}", i64::from(year) + LIFT * YEARS).as_bytes());
            LIFT
        }
        _ => 0,
    }
}

/// Replaces second 60 by 59, in place. Returns `true` if it did.
fn lower_leap_second(text: &mut [u8]) -> bool {
    let end = if text.ends_with(b" GMT") {
        text.len() - 4
    } else {
        text.len().saturating_sub(5)
    };
    match text.get_mut(end.saturating_sub(3)..end) {
        Some(second) if second == b":60" => {
            second.copy_from_slice(b":59");
            true
        }
        _ => false,
    }
}
