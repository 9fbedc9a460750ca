//! How much is asked for at once, and how far ahead.

use std::time::Duration;

/// Bytes of one request at most: what is lost with a connection.
const LARGEST: u64 = 4 << 20;
/// At least: less is mostly round trips.
const SMALLEST: u64 = 64 << 10;
/// A request is for about what a way brings in so long.
const SECONDS: f64 = 1.0;
/// While nothing is known of a way.
const FIRST: u64 = 256 << 10;
/// Requests that wait for their answer: their sizes are kept in memory, and lost with a connection.
const MOST_AHEAD: usize = 16;

/// Bytes of a way's next request: `rate` is the way's, bytes/s, `waiting` what its source has left, `share`
/// the way's part of that by its weight, 0 to 1. In the middle a way takes what it can carry: none waits
/// for another. Towards the end requests get smaller by the shares, so that all ways end together.
pub(super) fn request(rate: f64, waiting: u64, share: f64) -> u64 {
    let usual = if rate > 0.0 { (rate * SECONDS) as u64 } else { FIRST };
    let part = (waiting as f64 * share / 2.0) as u64;
    usual.min(part).clamp(SMALLEST, LARGEST)
}

/// How many requests are to be on their way, so that the next bytes are there when the last ones
/// have come, whatever the round trip.
pub(super) fn ahead(rate: f64, rtt: Duration, bytes: u64) -> usize {
    let in_flight = (rate * rtt.as_secs_f64() / bytes.max(1) as f64).ceil();
    (2 + in_flight as usize).min(MOST_AHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fit_the_way_and_shrink_at_the_end() {
        assert_eq!(request(0.0, 1 << 30, 1.0), FIRST);
        assert_eq!(request(1e6, 1 << 30, 0.25), 1_000_000);
        assert_eq!(request(1e9, 1 << 40, 0.25), LARGEST);
        assert_eq!(request(1e9, 8_000_000, 0.25), 1_000_000, "its share, in two parts");
        assert_eq!(request(1e9, 8_000_000, 0.75), 3_000_000);
        assert_eq!(request(1e3, 1 << 30, 0.25), SMALLEST);
    }

    #[test]
    fn a_long_fat_way_is_kept_full() {
        let long = Duration::from_millis(200);
        // 125 MB/s over 200 ms: 25 MB are on their way, in pieces of 4 MiB.
        assert_eq!(ahead(125e6, long, LARGEST), 8);
        assert_eq!(ahead(1e5, long, SMALLEST), 3);
        assert_eq!(ahead(1e12, long, SMALLEST), MOST_AHEAD);
    }
}
