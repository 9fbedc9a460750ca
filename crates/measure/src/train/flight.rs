//! What is known of a train when it is over.

use super::Stamp;
use std::{net::IpAddr, time::Duration};
use thalweg_units::{Rate, Time};

/// Each probe's way, and what the sender counted.
///
/// Sending and arrival are by two clocks that need not agree: only differences within one, and
/// differences of one-way delays, mean anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flight {
    /// When each probe left, by the sender's clock; `None`: it was not sent.
    pub sent: Vec<Option<Time>>,
    /// When each one arrived, by the receiver's clock; `None`: it did not.
    pub arrived: Vec<Option<Stamp>>,
    /// Of probes that went so many hops and no farther, what a router said; empty where none was limited.
    pub expired: Vec<Option<Expired>>,
    /// The sender's counts.
    pub tally: Tally,
    /// Datagrams, of anybody's, that the receiving host dropped meanwhile: its own losses, and not the path's.
    pub dropped: u64,
}

/// A router's word that a probe had gone as many hops as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The router.
    pub by: IpAddr,
    /// When its word came back, by the sending host's kernel.
    pub at: Stamp,
}

/// The statistics of §2.4, but one: how long submitting took, the other half of (a). A train is submitted whole
/// ([`Train`](super::Train)), so that there is no time in which it is half there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// (a) How long the train took to be sent.
    pub transmitted: Duration,
    /// (b) Riders' packets that would have competed with the train.
    pub hidden_packets: u64,
    /// (b) Bytes of them, headers included.
    pub hidden_bytes: u64,
    /// (c) Probes that carried riders.
    pub carriers: u64,
    /// (c) Riders' bytes in all probes.
    pub carried_bytes: u64,
}

impl Tally {
    /// What the hidden traffic would have taken of the path while the train went.
    pub fn hidden_rate(&self) -> Rate {
        match self.transmitted.is_zero() {
            true => Rate::ZERO,
            false => {
                let bits = self.hidden_bytes as f64 * 8.0;
                Rate::from_bps((bits / self.transmitted.as_secs_f64()) as u64)
            }
        }
    }
}

/// A probe that came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Its place in the train.
    pub place: usize,
    /// By the sender's clock.
    pub sent: Time,
    /// By the receiver's.
    pub arrived: Stamp,
}

impl Passed {
    /// The one-way delay, ns, plus a constant that nobody knows.
    pub fn delay(&self) -> i64 {
        self.arrived.delay(self.sent)
    }
}

impl Flight {
    /// Those that came through, in the train's order.
    pub fn passed(&self) -> impl Iterator<Item = Passed> {
        let both = self.sent.iter().zip(&self.arrived).enumerate();
        both.filter_map(|(place, (sent, arrived))| {
            Some(Passed { place, sent: (*sent)?, arrived: (*arrived)? })
        })
    }

    /// How many were sent.
    pub fn left(&self) -> usize {
        self.sent.iter().flatten().count()
    }

    /// The share that was lost, from 0 to 1.
    pub fn lost(&self) -> f64 {
        match self.left() {
            0 => 1.0,
            left => 1.0 - self.passed().count() as f64 / left as f64,
        }
    }

    /// Whether some came in another order than they left.
    pub fn is_reordered(&self) -> bool {
        let arrivals: Vec<Stamp> = self.passed().map(|probe| probe.arrived).collect();
        arrivals.windows(2).any(|pair| pair[1] < pair[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(us: &[i64]) -> Vec<Option<Time>> {
        let time = |us: &i64| (*us >= 0).then(|| Time::from_nanos(*us as u64 * 1000));
        us.iter().map(time).collect()
    }

    fn came(us: &[i64]) -> Vec<Option<Stamp>> {
        let stamp = |us: &i64| (*us >= 0).then(|| Stamp::from_unix_nanos(*us as u64 * 1000));
        us.iter().map(stamp).collect()
    }

    #[test]
    fn what_was_lost_and_what_overtook_is_seen() {
        let sent = sent(&[0, 10, 20, -1]);
        let seen = Flight { sent, arrived: came(&[100, -1, 130, -1]), ..Flight::default() };
        assert!((seen.lost() - 1.0 / 3.0).abs() < 1e-9 && !seen.is_reordered());
        let delays: Vec<i64> = seen.passed().map(|probe| probe.delay()).collect();
        assert_eq!(delays, [100_000, 110_000]);
        let mixed = Flight { arrived: came(&[100, 90, 130, -1]), ..seen };
        assert!(mixed.is_reordered());
        assert!((Flight::default().lost() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn hidden_traffic_has_the_trains_time() {
        let transmitted = Duration::from_millis(100);
        let tally = Tally { transmitted, hidden_bytes: 50_000, ..Tally::default() };
        assert_eq!(tally.hidden_rate(), Rate::from_mbps(4.0));
        assert_eq!(Tally::default().hidden_rate(), Rate::ZERO);
    }
}
