//! Retransmissions of one connection. Pure.

use std::time::Duration;
use thalweg_net::TcpInfo;
use thalweg_units::Time;

/// The shortest time between two results: the estimate weighs looks, not bytes, and a link is looked at each round
/// trip.
const BETWEEN: Duration = Duration::from_secs(1);

/// Fewer bytes say nothing about loss: they wait for the next look.
const TELLING: u64 = 16 << 10;

/// The kernel's counters at the last result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retransmissions {
    acknowledged: u64,
    retransmitted: u32,
    at: Time,
}

impl Retransmissions {
    /// Bytes that were retransmitted, and all bytes sent, since the last result. `None`: it is too early, or too little
    /// was sent; the next look includes these bytes.
    pub fn update(&mut self, info: &TcpInfo, now: Time) -> Option<(u64, u64)> {
        let again = u64::from(info.retransmitted.saturating_sub(self.retransmitted));
        let again = again.saturating_mul(info.mss.into());
        let all = info.acknowledged.saturating_sub(self.acknowledged).saturating_add(again);
        if all < TELLING || now.since(self.at) < BETWEEN {
            return None;
        }
        let (acknowledged, retransmitted) = (info.acknowledged, info.retransmitted);
        *self = Self { acknowledged, retransmitted, at: now };
        Some((again, all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_amounts_wait_and_nothing_counts_twice() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let info = |acknowledged, retransmitted| TcpInfo {
            acknowledged,
            retransmitted,
            mss: 1000,
            ..TcpInfo::default()
        };
        let mut resent = Retransmissions::default();
        assert_eq!(resent.update(&info(9_000, 1), at(1000)), None, "too little");
        assert_eq!(resent.update(&info(90_000, 10), at(1500)), Some((10_000, 100_000)));
        assert_eq!(resent.update(&info(190_000, 10), at(2400)), None, "too early");
        assert_eq!(resent.update(&info(190_000, 20), at(2500)), Some((10_000, 110_000)));
        assert_eq!(resent.update(&info(190_000, 20), at(9000)), None);
    }
}
