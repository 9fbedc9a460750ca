//! The average rate of a receiver, for reports.

/// A shorter time gives no rate: round trips dominate it.
const MIN_SECONDS: f64 = 0.1;

/// Fewer bytes give no rate.
const MIN_BYTES: u64 = 64 << 10;

/// The average rate in bit/s of `bytes` new bytes in `seconds`; `None` if either is too small for a meaningful rate.
pub fn average_bps(bytes: u64, seconds: f64) -> Option<u64> {
    let is_enough = seconds >= MIN_SECONDS && bytes >= MIN_BYTES;
    is_enough.then(|| (bytes as f64 * 8.0 / seconds) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_or_few_bytes_give_no_rate() {
        assert_eq!(average_bps(1_000_000, 2.0), Some(4_000_000));
        assert_eq!((average_bps(1_000_000, 0.09), average_bps(1, 0.5)), (None, None));
        assert_eq!(average_bps(1_000_000, 0.0), None);
    }
}
