//! Sessions that are bound to an address stay with their interface.

use std::collections::BTreeMap;
use std::time::Duration;
use thalweg_units::Time;

/// Destinations that are remembered.
const MOST: usize = 4096;

/// Where the last connection to each destination went. Servers that tie a session to the client's
/// address break when the next connection comes from another one.
#[derive(Clone, Debug)]
pub struct Affinity {
    /// How long after the last connection it holds.
    keep: Duration,
    entries: BTreeMap<String, (u32, Time)>,
}

impl Affinity {
    /// For so long after each connection; zero: never.
    pub fn new(keep: Duration) -> Self {
        Self { keep, entries: BTreeMap::new() }
    }

    /// The interface that this destination's connections are to keep to, by its kernel index.
    pub fn of(&self, destination: &str, now: Time) -> Option<u32> {
        let (interface, until) = self.entries.get(destination)?;
        (*until > now).then_some(*interface)
    }

    /// A connection went there. When there are too many, those that ended go, then the oldest.
    pub fn went(&mut self, destination: &str, interface: u32, now: Time) {
        if self.keep.is_zero() {
            return;
        }
        if self.entries.len() >= MOST && !self.entries.contains_key(destination) {
            self.entries.retain(|_, (_, until)| *until > now);
        }
        if self.entries.len() >= MOST && !self.entries.contains_key(destination) {
            let oldest = self.entries.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.entries.remove(&oldest);
            }
        }
        self.entries.insert(destination.to_owned(), (interface, now + self.keep));
    }

    /// This destination need not keep to this interface any more.
    pub fn free(&mut self, destination: &str, interface: u32) {
        if self.entries.get(destination).is_some_and(|(kept, _)| *kept == interface) {
            self.entries.remove(destination);
        }
    }

    /// An interface is gone: its destinations are free.
    pub fn gone(&mut self, interface: u32) {
        self.entries.retain(|_, (kept, _)| *kept != interface);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_for_a_time_and_not_beyond_its_interface() {
        let mut affinity = Affinity::new(Duration::from_secs(10));
        let at = |s: u64| Time::from_nanos(s * 1_000_000_000);
        affinity.went("bank", 2, at(0));
        assert_eq!((affinity.of("bank", at(9)), affinity.of("bank", at(10))), (Some(2), None));
        affinity.went("bank", 2, at(20));
        affinity.free("bank", 3);
        affinity.free("shop", 2);
        assert_eq!(affinity.of("bank", at(21)), Some(2));
        affinity.gone(2);
        assert_eq!(affinity.of("bank", at(21)), None);
    }

    #[test]
    fn it_is_bounded() {
        let mut affinity = Affinity::new(Duration::from_secs(10));
        for i in 0..2 * MOST as u64 {
            affinity.went(&i.to_string(), 1, Time::from_nanos(i));
        }
        assert_eq!(affinity.entries.len(), MOST);
        assert_eq!(affinity.of("0", Time::from_nanos(1)), None);
    }
}
