//! How long a busy server asks to be left alone.

use super::resource::one;
use hyper::{
    HeaderMap,
    header::{DATE, RETRY_AFTER},
};
use std::time::{Duration, SystemTime};

/// Reads `Retry-After` (RFC 9110 §10.2.3): seconds, or a date.
///
/// A date is compared with the server's own `Date`, because this host's clock may be wrong
/// by a day; without that field, with `now`. A moment that is over is no wait.
pub(super) fn retry_after(fields: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = one(fields, &RETRY_AFTER)?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let sent = one(fields, &DATE).and_then(|d| httpdate::parse_http_date(d.trim()).ok());
    Some(until.duration_since(sent.unwrap_or(now)).unwrap_or_default())
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
        assert_eq!(wait(&[("retry-after", "soon".into())]), None);
        assert_eq!(wait(&[]), None);
    }
}
