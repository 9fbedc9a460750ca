//! Interfaces by which nothing was reached of late, though they are there: a modem without
//! credit, a router whose own link is down.

use std::{collections::BTreeMap, time::Duration};
use thalweg_units::Time;

/// So many dials in a row that another interface had to do put it in doubt: one may be the
/// server's.
const MANY: u32 = 2;

/// It is left out for so long then, twice as long each time.
const FIRST: Duration = Duration::from_secs(10);

/// And never for longer.
const LONGEST: Duration = Duration::from_secs(300);

/// Interfaces that are left out for a while, where others are there.
#[derive(Clone, Debug, Default)]
pub struct Doubts(BTreeMap<u32, Doubt>);

#[derive(Clone, Copy, Debug)]
struct Doubt {
    misses: u32,
    until: Time,
}

impl Doubts {
    /// A connection stands by it.
    pub fn serves(&mut self, interface: u32) {
        self.0.remove(&interface);
    }

    /// What did not come about by it did by another one.
    pub fn missed(&mut self, interface: u32, now: Time) {
        let doubt = self.0.entry(interface).or_insert(Doubt { misses: 0, until: Time::ZERO });
        doubt.misses = doubt.misses.saturating_add(1);
        if let Some(again) = doubt.misses.checked_sub(MANY) {
            let wait = FIRST.saturating_mul(1 << again.min(8)).min(LONGEST);
            doubt.until = now + wait;
        }
    }

    /// A probe by it failed: it is left out as if others had had to do [`MANY`] times.
    pub fn leads_nowhere(&mut self, interface: u32, now: Time) {
        (0..MANY).for_each(|_| self.missed(interface, now));
    }

    /// It changed, or is gone.
    pub fn forget(&mut self, interface: u32) {
        self.0.remove(&interface);
    }

    /// Whether it is left out now.
    pub fn of(&self, interface: u32, now: Time) -> bool {
        self.0.get(&interface).is_some_and(|doubt| doubt.until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn who_misses_again_and_again_is_left_out_for_longer() {
        let mut doubts = Doubts::default();
        doubts.missed(2, at(0));
        assert!(!doubts.of(2, at(0)));
        doubts.missed(2, at(0));
        assert!(doubts.of(2, at(9)) && !doubts.of(2, at(10)));
        doubts.missed(2, at(10));
        assert!(doubts.of(2, at(29)) && !doubts.of(2, at(30)));
        (0..90).for_each(|_| doubts.missed(2, at(30)));
        assert!(doubts.of(2, at(329)) && !doubts.of(2, at(330)));
        doubts.serves(2);
        doubts.missed(2, at(30));
        assert!(!doubts.of(2, at(30)));
    }
}
