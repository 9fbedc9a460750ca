//! The report on a train that was sent: when each probe left and arrived.

use super::Stamp;
use std::{net::IpAddr, time::Duration};
use thalweg_units::{Rate, Time};

/// The times of each probe, and the sender's counts.
///
/// Departure and arrival are by two clocks that need not agree: only differences within one clock, and differences of
/// one-way delays, are meaningful.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flight {
    /// When each probe left, by the sender's clock; `None`: it was not sent.
    pub sent: Vec<Option<Time>>,
    /// When each probe arrived, by the receiver's clock; `None`: it did not arrive.
    pub arrived: Vec<Option<Stamp>>,
    /// A router's notice for each probe that reached its hop limit; empty if no probe had a limit.
    pub expired: Vec<Option<Expired>>,
    /// The sender's counts.
    pub tally: Tally,
    /// Datagrams of any program that the receiving host dropped in the meantime: losses of the host, not of the path.
    pub dropped: u64,
}

/// A router's notice that a probe reached its hop limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The router.
    pub by: IpAddr,
    /// When the notice arrived, by the sending host's kernel.
    pub at: Stamp,
}

/// The statistics of §2.4 except one: the time that submission took, the other half of (a). A train is submitted as a
/// whole ([`Train`](super::Train)), so it is never partly submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// (a) The time that it took to send the train.
    pub transmitted: Duration,
    /// (b) Packets of riders that would have competed with the train.
    pub hidden_packets: u64,
    /// (b) Their bytes, including headers.
    pub hidden_bytes: u64,
    /// (c) Probes that carried riders.
    pub carriers: u64,
    /// (c) Bytes of riders in all probes.
    pub carried_bytes: u64,
}

impl Tally {
    /// The rate at which the hidden traffic would have used the path while the train was sent.
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

/// A probe that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivedProbe {
    /// Its place in the train.
    pub place: usize,
    /// When it left, by the sender's clock.
    pub sent: Time,
    /// When it arrived, by the receiver's clock.
    pub arrived: Stamp,
}

impl ArrivedProbe {
    /// The one-way delay, ns, plus an unknown constant.
    pub fn delay(&self) -> i64 {
        self.arrived.delay(self.sent)
    }
}

impl Flight {
    /// The probes that arrived, in the order of the train.
    pub fn arrived_probes(&self) -> impl Iterator<Item = ArrivedProbe> {
        let both = self.sent.iter().zip(&self.arrived).enumerate();
        both.filter_map(|(place, (sent, arrived))| {
            Some(ArrivedProbe { place, sent: (*sent)?, arrived: (*arrived)? })
        })
    }

    /// The number of probes that were sent.
    pub fn sent_count(&self) -> usize {
        self.sent.iter().flatten().count()
    }

    /// The share of the sent probes that was lost, 0 to 1; 1 if none was sent.
    pub fn loss_share(&self) -> f64 {
        match self.sent_count() {
            0 => 1.0,
            left => 1.0 - self.arrived_probes().count() as f64 / left as f64,
        }
    }

    /// Whether probes arrived in another order than they left.
    pub fn is_reordered(&self) -> bool {
        let arrivals: Vec<Stamp> = self.arrived_probes().map(|probe| probe.arrived).collect();
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
    fn losses_and_reordering_are_detected() {
        let sent = sent(&[0, 10, 20, -1]);
        let seen = Flight { sent, arrived: came(&[100, -1, 130, -1]), ..Flight::default() };
        assert!((seen.loss_share() - 1.0 / 3.0).abs() < 1e-9 && !seen.is_reordered());
        let delays: Vec<i64> = seen.arrived_probes().map(|probe| probe.delay()).collect();
        assert_eq!(delays, [100_000, 110_000]);
        let mixed = Flight { arrived: came(&[100, 90, 130, -1]), ..seen };
        assert!(mixed.is_reordered());
        assert!((Flight::default().loss_share() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_hidden_rate_is_over_the_transmission_time() {
        let transmitted = Duration::from_millis(100);
        let tally = Tally { transmitted, hidden_bytes: 50_000, ..Tally::default() };
        assert_eq!(tally.hidden_rate(), Rate::from_mbps(4.0));
        assert_eq!(Tally::default().hidden_rate(), Rate::ZERO);
    }
}
