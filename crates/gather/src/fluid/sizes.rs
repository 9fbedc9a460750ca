//! The size of requests, and the number of outstanding ones.

use std::time::Duration;

/// The maximum size of a request, bytes: this much is lost with a connection.
const LARGEST: u64 = 4 << 20;
/// The minimum size, bytes: smaller requests spend their time mostly on round trips.
const SMALLEST: u64 = 64 << 10;
/// A request covers about this many seconds of a path's rate.
const SECONDS: f64 = 1.0;
/// The size while a path's rate is unknown, bytes.
const FIRST: u64 = 256 << 10;
/// The maximum number of outstanding requests: their sizes are kept in memory, and they are lost with a connection.
const MOST_AHEAD: usize = 16;

/// Returns the size of a path's next request, bytes. `rate` is the path's, bytes/s; `waiting` is the source's remaining
/// data, bytes; `share` is the path's part of that by its weight, 0 to 1. Most of the time a path takes as much as it
/// can carry, and none waits for another. Towards the end the shares make requests smaller, so that all paths end
/// together.
pub(super) fn request(rate: f64, waiting: u64, share: f64) -> u64 {
    let usual = if rate > 0.0 { (rate * SECONDS) as u64 } else { FIRST };
    let part = (waiting as f64 * share / 2.0) as u64;
    usual.min(part).clamp(SMALLEST, LARGEST)
}

/// Returns the number of outstanding requests that keeps the path full at any round trip.
pub(super) fn ahead(rate: f64, rtt: Duration, bytes: u64) -> usize {
    let in_flight = (rate * rtt.as_secs_f64() / bytes.max(1) as f64).ceil();
    (2 + in_flight as usize).min(MOST_AHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fit_the_path_and_shrink_at_the_end() {
        assert_eq!(request(0.0, 1 << 30, 1.0), FIRST);
        assert_eq!(request(1e6, 1 << 30, 0.25), 1_000_000);
        assert_eq!(request(1e9, 1 << 40, 0.25), LARGEST);
        assert_eq!(request(1e9, 8_000_000, 0.25), 1_000_000, "its share, in two parts");
        assert_eq!(request(1e9, 8_000_000, 0.75), 3_000_000);
        assert_eq!(request(1e3, 1 << 30, 0.25), SMALLEST);
    }

    #[test]
    fn a_long_fat_path_is_kept_full() {
        let long = Duration::from_millis(200);
        // 125 MB/s over 200 ms: 25 MB in flight, in requests of 4 MiB.
        assert_eq!(ahead(125e6, long, LARGEST), 8);
        assert_eq!(ahead(1e5, long, SMALLEST), 3);
        assert_eq!(ahead(1e12, long, SMALLEST), MOST_AHEAD);
    }
}
