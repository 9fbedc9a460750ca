//! Interfaces by which nothing was reached of late, though they are there: a modem without
//! credit, a router whose own link is down.

use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::Time;

/// So many dials in a row that another interface had to do put it in doubt: one may be the
/// server's.
const MANY: u32 = 2;

/// It is left out for so long then, twice as long each time.
const FIRST: Duration = Duration::from_secs(10);

/// And never for longer.
const LONGEST: Duration = Duration::from_secs(300);

/// Why an interface is left out for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Nothing was reached by it of late.
    Unreached,
    /// What answers by it is not who was asked: a network where one has to log in first.
    Impostor,
}

/// Interfaces that are left out for a while, where others are there.
#[derive(Clone, Debug, Default)]
pub struct Doubts(BTreeMap<u32, Doubt>);

#[derive(Clone, Copy, Debug)]
struct Doubt {
    misses: u32,
    until: Time,
    why: Why,
}

impl Doubts {
    /// A connection stands by it. Where somebody answers for everybody that is no proof.
    pub fn serves(&mut self, interface: u32) {
        self.0.retain(|at, doubt| *at != interface || doubt.why == Why::Impostor);
    }

    /// Whom a connection was meant for has answered by it.
    pub fn proven(&mut self, interface: u32) {
        self.0.remove(&interface);
    }

    /// What did not come about by it did by another one.
    pub fn missed(&mut self, interface: u32, now: Time) {
        let doubt = self.at(interface);
        doubt.misses = doubt.misses.saturating_add(1);
        doubt.wait(now);
    }

    /// Somebody else answered by it than who was asked: once is enough.
    pub fn answered_falsely(&mut self, interface: u32, now: Time) {
        let doubt = self.at(interface);
        // Connections that were under way together are one sign.
        if doubt.why == Why::Impostor && doubt.until > now {
            return;
        }
        doubt.misses = doubt.misses.saturating_add(1).max(MANY);
        doubt.why = Why::Impostor;
        doubt.wait(now);
    }

    fn at(&mut self, interface: u32) -> &mut Doubt {
        let none = Doubt { misses: 0, until: Time::ZERO, why: Why::Unreached };
        self.0.entry(interface).or_insert(none)
    }

    /// A probe by it failed: it is left out as if others had had to do [`MANY`] times.
    pub fn leads_nowhere(&mut self, interface: u32, now: Time) {
        (0..MANY).for_each(|_| self.missed(interface, now));
    }

    /// It changed, or is gone.
    pub fn forget(&mut self, interface: u32) {
        self.0.remove(&interface);
    }

    /// Why it is left out now.
    pub fn of(&self, interface: u32, now: Time) -> Option<Why> {
        self.0.get(&interface).filter(|doubt| doubt.until > now).map(|doubt| doubt.why)
    }
}

impl Doubt {
    fn wait(&mut self, now: Time) {
        if let Some(again) = self.misses.checked_sub(MANY) {
            self.until = now + FIRST.saturating_mul(1 << again.min(8)).min(LONGEST);
        }
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
        assert_eq!(doubts.of(2, at(0)), None);
        doubts.missed(2, at(0));
        assert!(is(&doubts, 9) && !is(&doubts, 10));
        doubts.missed(2, at(10));
        assert!(is(&doubts, 29) && !is(&doubts, 30));
        (0..90).for_each(|_| doubts.missed(2, at(30)));
        assert!(is(&doubts, 329) && !is(&doubts, 330));
        doubts.serves(2);
        doubts.missed(2, at(30));
        assert!(!is(&doubts, 30));
    }

    fn is(doubts: &Doubts, s: u64) -> bool {
        doubts.of(2, at(s)).is_some()
    }

    #[test]
    fn who_answers_for_everybody_is_believed_once_the_one_who_was_asked_answers() {
        let mut doubts = Doubts::default();
        doubts.answered_falsely(2, at(0));
        doubts.answered_falsely(2, at(1));
        doubts.serves(2);
        assert_eq!((doubts.of(2, at(9)), doubts.of(2, at(10))), (Some(Why::Impostor), None));
        doubts.answered_falsely(2, at(10));
        assert!(is(&doubts, 29) && !is(&doubts, 30));
        doubts.proven(2);
        assert!(!is(&doubts, 11));
    }
}
