//! How long a busy server asks to wait.

use super::resource::one;
use hyper::{
    HeaderMap,
    header::{DATE, RETRY_AFTER},
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thalweg_units::{WallTime, format_duration};
use thalweg_wire::retry_after;

/// The longest wait for a server, as the sum of its consecutive waits. A user at a terminal takes two minutes for a
/// pause, and more for a program that hangs. Beyond it the download fails and states the server's wait, so that the
/// user or a timer can retry then.
pub const MAX_WAIT: Duration = Duration::from_secs(120);

/// Whether to wait for `wait` more, after having waited for `waited`.
pub(super) fn is_bearable(waited: Duration, wait: Duration) -> bool {
    waited.saturating_add(wait) <= MAX_WAIT
}

/// Formats a wait. Waits are parsed as at most a day, so a day may stand for any longer time.
pub(super) fn shown(wait: Duration) -> String {
    let text = format_duration(wait);
    if wait < thalweg_wire::retry_after::MAX { text } else { format!("{text} or more") }
}

/// Reads `Retry-After` (RFC 9110 §10.2.3): seconds, or a date; at most a day.
///
/// A date is compared with the server's own `Date`, because this host's clock may be wrong by a day; without that
/// field, with `now`. A date in the past means no wait.
pub(super) fn retry_after(fields: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = one(fields, &RETRY_AFTER)?;
    let sent = one(fields, &DATE).and_then(|d| retry_after::http_date(d.trim()));
    let now = || now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let here = || WallTime::from_unix_nanos(now().try_into().unwrap_or(u64::MAX));
    retry_after::retry_after(text, sent.unwrap_or_else(here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let date = |after| httpdate::fmt_http_date(now + Duration::from_secs(after));
        let wait = |fields: &[(&'static str, String)]| {
            let field = |(n, v): &(&'static str, String)| {
                (hyper::header::HeaderName::from_static(n), v.parse().unwrap())
            };
            retry_after(&fields.iter().map(field).collect(), now).map(|d| d.as_secs())
        };
        assert_eq!(wait(&[("retry-after", "120".into())]), Some(120));
        assert_eq!(wait(&[("retry-after", date(60))]), Some(60));
        assert_eq!(wait(&[("retry-after", date(60)), ("date", date(50))]), Some(10));
        assert_eq!(wait(&[("retry-after", date(60)), ("date", date(90))]), Some(0));
        assert_eq!(wait(&[("retry-after", u64::MAX.to_string())]), Some(86_400));
        assert_eq!(wait(&[("retry-after", "soon".into())]), None);
        assert_eq!(wait(&[]), None);
    }
}
