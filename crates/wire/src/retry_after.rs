//! Reads `Retry-After` fields (RFC 9110 §10.2.3) and HTTP dates.

use std::time::{Duration, UNIX_EPOCH};
use thalweg_units::WallTime;

/// The longest wait returned; a server that asks for more is not worth waiting for.
pub const MAX: Duration = Duration::from_secs(24 * 3600);

/// Reads a `Retry-After` field, which is a number of seconds or a date. Returns at most [`MAX`]; `None` if the field is
/// invalid.
///
/// A date is compared with `now`: pass the response's own `Date` if it has one (see [`http_date`]), since this host's
/// clock may be wrong. A date in the past is a wait of zero.
pub fn retry_after(field: &str, now: WallTime) -> Option<Duration> {
    let text = field.trim_matches([' ', '\t']);
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // A number that does not fit is more than a day.
        return Some(text.parse().map_or(MAX, Duration::from_secs).min(MAX));
    }
    let until = http_date(text)?.as_unix_nanos();
    Some(Duration::from_nanos(until.saturating_sub(now.as_unix_nanos())).min(MAX))
}

/// Reads a date in any of HTTP's three formats (RFC 9110 §5.6.7); `None` if it is invalid, before 1970 or after 2554.
pub fn http_date(text: &str) -> Option<WallTime> {
    let date = httpdate::parse_http_date(text).ok()?;
    let nanos = date.duration_since(UNIX_EPOCH).ok()?.as_nanos();
    u64::try_from(nanos).ok().map(WallTime::from_unix_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        let now = http_date("Fri, 31 Dec 1999 23:59:00 GMT").unwrap();
        let wait = |text: &str| retry_after(text, now).map(|d| d.as_secs());
        for (text, expected) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("86401", Some(86_400)),
            ("99999999999999999999999", Some(86_400)),
            ("Fri, 31 Dec 1999 23:59:59 GMT", Some(59)),
            ("Friday, 31-Dec-99 23:59:59 GMT", Some(59)),
            ("Fri Dec 31 23:59:59 1999", Some(59)),
            ("Fri, 31 Dec 1999 23:00:00 GMT", Some(0)),
            ("Sun, 31 Dec 2023 00:00:00 GMT", Some(86_400)),
            ("-1", None),
            ("+5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(wait(text), expected, "{text}");
        }
    }
}
