//! Affinity of destinations: sessions that are bound to an address stay with their interface.

use crate::{Candidate, ConnectionMethod, connection::rates};
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::Time;

/// The maximum number of remembered destinations. Beyond it the oldest is forgotten; connections to it are then
/// assigned anew.
const MAX_DESTINATIONS: usize = 4096;

/// A destination moves to another interface that finishes in less than two thirds of the time: for example, if a
/// second, equal connection begins before half of the first one has arrived, and another interface is idle.
const MAX_TIME_RATIO: f64 = 2.0 / 3.0;

/// The other interface must also finish this much sooner, seconds: a short gain is not worth a session.
const MIN_GAIN: f64 = 0.5;

/// The interfaces that the last connections to each destination used. Servers that tie a session to the client's
/// address break if the next connection comes from another one.
#[derive(Clone, Debug)]
pub struct Affinity {
    /// How long a destination keeps its interface after the last connection.
    keep: Duration,
    /// The interfaces of each destination, and until when each is kept; the one that was used last is at the end. There
    /// are never more than the host has.
    entries: BTreeMap<String, Vec<(u32, Time)>>,
}

impl Affinity {
    /// Creates an affinity that lasts this long after each connection; zero: none.
    pub fn new(keep: Duration) -> Self {
        Self { keep, entries: BTreeMap::new() }
    }

    /// The interfaces to which this destination's connections are to keep, by kernel index, the one used last first.
    pub fn interfaces(&self, destination: &str, now: Time) -> Vec<u32> {
        let used = self.entries.get(destination).into_iter().flatten().rev();
        used.filter(|(_, until)| *until > now).map(|(interface, _)| *interface).collect()
    }

    /// Records a connection. If there are too many destinations, expired ones are removed, then the oldest.
    pub fn record_connection(&mut self, destination: &str, interface: u32, now: Time) {
        if self.keep.is_zero() {
            return;
        }
        let last = |used: &Vec<(u32, Time)>| used.last().map(|(_, until)| *until);
        if self.entries.len() >= MAX_DESTINATIONS && !self.entries.contains_key(destination) {
            self.entries.retain(|_, used| last(used).is_some_and(|until| until > now));
        }
        if self.entries.len() >= MAX_DESTINATIONS && !self.entries.contains_key(destination) {
            let oldest = self.entries.iter().min_by_key(|(_, used)| last(used));
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.entries.remove(&oldest);
            }
        }
        let used = self.entries.entry(destination.to_owned()).or_default();
        used.retain(|(kept, until)| *kept != interface && *until > now);
        used.push((interface, now + self.keep));
    }

    /// Releases this destination from this interface.
    pub fn release(&mut self, destination: &str, interface: u32) {
        if let Some(used) = self.entries.get_mut(destination) {
            used.retain(|(kept, _)| *kept != interface);
        }
        self.entries.retain(|_, used| !used.is_empty());
    }

    /// Releases all destinations from an interface that is gone.
    pub fn remove_interface(&mut self, interface: u32) {
        self.entries.values_mut().for_each(|used| used.retain(|(kept, _)| *kept != interface));
        self.entries.retain(|_, used| !used.is_empty());
    }
}

/// The candidates among which a connection of `demand` bytes has to choose, because its destination used them already.
/// `None` if it is free: none of them is left, or, with maximum throughput, another interface would finish much sooner.
pub fn keep_affinity(
    candidates: &[Candidate],
    used: &[u32],
    demand: u64,
    method: ConnectionMethod,
) -> Option<Vec<Candidate>> {
    let is_kept = |candidate: &Candidate| used.contains(&candidate.interface);
    let rates = rates(candidates);
    let done = |(candidate, rate): (&Candidate, &f64)| {
        candidate.load.saturating_add(demand) as f64 * 8.0 / rate
    };
    let soonest = |kept: bool| {
        let such =
            candidates.iter().zip(&rates).filter(|(candidate, _)| is_kept(candidate) == kept);
        such.map(done).fold(f64::INFINITY, f64::min)
    };
    let (kept, others) = (soonest(true), soonest(false));
    let is_sooner = others < kept * MAX_TIME_RATIO && others + MIN_GAIN < kept;
    let is_free = method == ConnectionMethod::MaximumThroughput && is_sooner;
    (kept.is_finite() && !is_free).then(|| candidates.iter().copied().filter(is_kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_units::Rate;

    #[test]
    fn an_affinity_ends_after_a_time_or_with_its_interface() {
        let mut affinity = Affinity::new(Duration::from_secs(10));
        let at = |s: u64| Time::from_nanos(s * 1_000_000_000);
        affinity.record_connection("bank", 2, at(0));
        assert_eq!(
            (affinity.interfaces("bank", at(9)), affinity.interfaces("bank", at(10))),
            (vec![2], vec![])
        );
        affinity.record_connection("bank", 2, at(20));
        affinity.release("bank", 3);
        affinity.release("shop", 2);
        assert_eq!(affinity.interfaces("bank", at(21)), [2]);
        // Each interface that was used is kept, for its own time.
        affinity.record_connection("bank", 3, at(25));
        assert_eq!(affinity.interfaces("bank", at(29)), [3, 2]);
        assert_eq!(affinity.interfaces("bank", at(31)), [3]);
        affinity.remove_interface(2);
        affinity.remove_interface(3);
        assert!(affinity.interfaces("bank", at(21)).is_empty() && affinity.entries.is_empty());
    }

    #[test]
    fn the_number_of_destinations_is_bounded() {
        let mut affinity = Affinity::new(Duration::from_secs(10));
        for i in 0..2 * MAX_DESTINATIONS as u64 {
            affinity.record_connection(&i.to_string(), 1, Time::from_nanos(i));
        }
        assert_eq!(affinity.entries.len(), MAX_DESTINATIONS);
        assert!(affinity.interfaces("0", Time::from_nanos(1)).is_empty());
    }

    fn candidate(interface: u32, mbps: f64, load: u64) -> Candidate {
        Candidate { interface, rate: Rate::from_mbps(mbps), load, rtt: Duration::ZERO }
    }

    #[test]
    fn a_destination_moves_to_an_interface_that_finishes_much_sooner() {
        let kept = |candidates: &[Candidate], demand, method| {
            let kept = keep_affinity(candidates, &[2], demand, method)?;
            Some(kept.iter().map(|c| c.interface).collect::<Vec<_>>())
        };
        let fastest = ConnectionMethod::MaximumThroughput;
        let equal = |load| [candidate(2, 8.0, load), candidate(3, 8.0, 0)];
        assert_eq!(kept(&equal(0), 1_000_000, fastest), Some(vec![2]));
        assert_eq!(kept(&equal(900_000), 1_000_000, fastest), None, "its first one is under way");
        assert_eq!(kept(&equal(900_000), 1_000_000, ConnectionMethod::RoundRobin), Some(vec![2]));
        let slow = [candidate(2, 2.0, 0), candidate(3, 8.0, 0)];
        assert_eq!(kept(&slow, 1_000_000, fastest), None);
        assert_eq!(kept(&slow, 20_000, fastest), Some(vec![2]), "a moment is not worth it");
        assert_eq!(kept(&slow[1..], 20_000, fastest), None, "it is gone");
    }
}
