//! What is said of how fast a receiver got it.

/// Over less than this a rate says nothing: it is made of round trips.
const SHORTEST_SECONDS: f64 = 0.1;

/// Of fewer bytes neither does it.
const FEWEST_BYTES: u64 = 64 << 10;

/// New bytes over a receiver's own span, in bits a second, if there were enough of both to say
/// anything.
pub fn average_bps(bytes: u64, seconds: f64) -> Option<u64> {
    let is_enough = seconds >= SHORTEST_SECONDS && bytes >= FEWEST_BYTES;
    is_enough.then(|| (bytes as f64 * 8.0 / seconds) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_and_a_few_bytes_have_no_rate() {
        assert_eq!(average_bps(1_000_000, 2.0), Some(4_000_000));
        assert_eq!((average_bps(1_000_000, 0.09), average_bps(1, 0.5)), (None, None));
        assert_eq!(average_bps(1_000_000, 0.0), None);
    }
}
