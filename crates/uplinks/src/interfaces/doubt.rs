//! Interfaces that are up, but by which nothing was reached recently: a modem without credit, or a router whose own
//! link is down.
//!
//! A single destination may be at fault itself. So two different ones have to agree, or the same one has to answer
//! correctly by another interface.

use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_units::Time;

/// How many hosts have to agree: a single one may be at fault itself.
const MANY: usize = 2;

/// How long an interface is left out at first; twice as long each time.
const FIRST: Duration = Duration::from_secs(10);

/// The longest time that an interface is left out.
const LONGEST: Duration = Duration::from_secs(300);

/// How long signs and proofs are believed.
const FRESH: Duration = LONGEST;

/// Signs of one interface that are remembered. Beyond that, the oldest is forgotten.
const MOST_SIGNS: usize = 8;
/// Proofs of all interfaces that are remembered. Beyond that, the oldest is forgotten.
const MOST_PROOFS: usize = 256;

/// Why an interface is left out for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DoubtReason {
    /// Nothing was reached by it recently.
    Unreached,
    /// Another host answers by it than the one that was asked, as in a network that requires a login.
    Impostor,
}

impl DoubtReason {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unreached => "the latest connections over it failed",
            Self::Impostor => "a host other than the requested one answers",
        }
    }
}

/// A server: host and port. Another port of a host may be another server, which answers correctly.
pub type Server = (String, u16);

/// Interfaces that are left out for a while, as long as there are others.
#[derive(Clone, Debug, Default)]
pub struct Doubts {
    entries: BTreeMap<u32, Doubt>,
    /// Servers that answered correctly, by which interface, and when.
    proofs: BTreeMap<Server, (u32, Time)>,
}

#[derive(Clone, Debug)]
struct Doubt {
    /// How many times in a row it was left out.
    times: u32,
    until: Time,
    why: DoubtReason,
    signs: Vec<Sign>,
}

/// One server was not reached, or another host answered in its place.
#[derive(Clone, Debug)]
struct Sign {
    server: Server,
    why: DoubtReason,
    at: Time,
}

impl Doubts {
    /// A connection by this interface is established. In a network where one host answers for all, that is no proof.
    pub fn record_connected(&mut self, interface: u32) {
        let Some(doubt) = self.entries.get_mut(&interface) else { return };
        doubt.signs.retain(|sign| sign.why == DoubtReason::Impostor);
        if doubt.why == DoubtReason::Unreached {
            (doubt.times, doubt.until) = (0, Time::ZERO);
        }
    }

    /// The intended destination has answered over this interface, at `server` if it belongs to one. Interfaces over
    /// which that server was impersonated are doubted.
    pub fn record_proof(&mut self, interface: u32, server: Option<Server>, now: Time) {
        self.entries.remove(&interface);
        let Some(server) = server else { return };
        let is_sign = |sign: &Sign| {
            sign.server == server && sign.why == DoubtReason::Impostor && sign.is_fresh(now)
        };
        let others = self.entries.iter().filter(|(_, doubt)| doubt.signs.iter().any(is_sign));
        let others: Vec<u32> = others.map(|(other, _)| *other).collect();
        others.into_iter().for_each(|other| self.exclude(other, DoubtReason::Impostor, now));
        self.proofs.retain(|_, (_, at)| now.since(*at) < FRESH);
        if self.proofs.len() >= MOST_PROOFS {
            let oldest = self.proofs.iter().min_by_key(|(_, (_, at))| *at);
            let oldest = oldest.map(|(server, _)| server.clone());
            oldest.and_then(|server| self.proofs.remove(&server));
        }
        self.proofs.insert(server, (interface, now));
    }

    /// A connection to this server failed by this interface, and succeeded by another.
    pub fn record_unreached(&mut self, interface: u32, server: Server, now: Time) {
        self.add_sign(interface, Sign { server, why: DoubtReason::Unreached, at: now });
        if self.has_agreement(interface, DoubtReason::Unreached, now) {
            self.exclude(interface, DoubtReason::Unreached, now);
        }
    }

    /// Another host than this server answered by this interface.
    pub fn record_impostor(&mut self, interface: u32, server: Server, now: Time) {
        // Connections that were open at the same time are one sign.
        if self.reason(interface, now) == Some(DoubtReason::Impostor) {
            return;
        }
        let proof = self.proofs.get(&server);
        let is_right_elsewhere =
            proof.is_some_and(|(by, at)| *by != interface && now.since(*at) < FRESH);
        self.add_sign(interface, Sign { server, why: DoubtReason::Impostor, at: now });
        if is_right_elsewhere || self.has_agreement(interface, DoubtReason::Impostor, now) {
            self.exclude(interface, DoubtReason::Impostor, now);
        }
    }

    /// Leaves the interface out for this reason, which is proven: the intended host answers correctly by another
    /// interface.
    pub fn exclude(&mut self, interface: u32, why: DoubtReason, now: Time) {
        let doubt = self.entry(interface);
        doubt.why = why;
        doubt.until = now + FIRST.saturating_mul(1 << doubt.times.min(8)).min(LONGEST);
        doubt.times = doubt.times.saturating_add(1);
    }

    /// The interface changed, or is gone.
    pub fn forget(&mut self, interface: u32) {
        self.entries.remove(&interface);
        self.proofs.retain(|_, (by, _)| *by != interface);
    }

    /// Why the interface is left out now.
    pub fn reason(&self, interface: u32, now: Time) -> Option<DoubtReason> {
        self.entries.get(&interface).filter(|doubt| doubt.until > now).map(|doubt| doubt.why)
    }

    fn entry(&mut self, interface: u32) -> &mut Doubt {
        let (times, until, why, signs) = (0, Time::ZERO, DoubtReason::Unreached, Vec::new());
        self.entries.entry(interface).or_insert(Doubt { times, until, why, signs })
    }

    fn add_sign(&mut self, interface: u32, sign: Sign) {
        let signs = &mut self.entry(interface).signs;
        signs.retain(|old| (&old.server, old.why) != (&sign.server, sign.why));
        if signs.len() >= MOST_SIGNS {
            signs.remove(0);
        }
        signs.push(sign);
    }

    /// Whether enough hosts agree. A host that does the same by another interface does not count.
    fn has_agreement(&self, interface: u32, why: DoubtReason, now: Time) -> bool {
        let of = |doubt: &Doubt| {
            let fresh = doubt.signs.iter().filter(|sign| sign.why == why && sign.is_fresh(now));
            fresh.map(|sign| sign.server.0.clone()).collect::<BTreeSet<_>>()
        };
        let others = self.entries.iter().filter(|(at, _)| **at != interface);
        let others: BTreeSet<String> = others.flat_map(|(_, doubt)| of(doubt)).collect();
        self.entries
            .get(&interface)
            .is_some_and(|doubt| of(doubt).difference(&others).count() >= MANY)
    }
}

impl Sign {
    fn is_fresh(&self, now: Time) -> bool {
        now.since(self.at) <= FRESH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    fn server(name: &str) -> Server {
        (name.to_owned(), 443)
    }

    #[test]
    fn an_interface_that_keeps_failing_is_left_out_for_longer() {
        let mut doubts = Doubts::default();
        doubts.record_unreached(2, server("a"), at(0));
        assert_eq!(doubts.reason(2, at(0)), None);
        doubts.record_unreached(2, server("b"), at(0));
        assert!(is(&doubts, 9) && !is(&doubts, 10));
        doubts.record_unreached(2, server("b"), at(10));
        assert!(is(&doubts, 29) && !is(&doubts, 30));
        (0..90).for_each(|_| doubts.record_unreached(2, server("c"), at(30)));
        assert!(is(&doubts, 329) && !is(&doubts, 330));
        doubts.record_connected(2);
        doubts.record_unreached(2, server("a"), at(30));
        assert!(!is(&doubts, 30));
    }

    fn is(doubts: &Doubts, s: u64) -> bool {
        doubts.reason(2, at(s)).is_some()
    }

    #[test]
    fn one_host_alone_does_not_doubt_an_interface() {
        let mut doubts = Doubts::default();
        for s in 0..90 {
            doubts.record_unreached(2, server("a"), at(s));
            doubts.record_impostor(2, server("c"), at(s));
            doubts.record_impostor(2, ("c".to_owned(), 8080), at(s));
        }
        assert!(!is(&doubts, 90));
        doubts.record_impostor(2, server("d"), at(1000));
        assert!(!is(&doubts, 1000), "what the other said is long ago");
        doubts.record_impostor(2, server("e"), at(1001));
        assert_eq!(doubts.reason(2, at(1001)), Some(DoubtReason::Impostor));
    }

    #[test]
    fn hosts_that_fail_by_another_interface_too_do_not_count() {
        let mut doubts = Doubts::default();
        for host in ["a", "b", "c"] {
            doubts.record_impostor(3, server(host), at(0));
            doubts.record_impostor(2, server(host), at(0));
        }
        assert!(!is(&doubts, 0), "{doubts:?}");
    }

    #[test]
    fn a_host_that_answers_correctly_elsewhere_is_believed_at_once() {
        for sign_first in [true, false] {
            let mut doubts = Doubts::default();
            if !sign_first {
                doubts.record_proof(3, Some(server("bank")), at(0));
            }
            doubts.record_impostor(2, server("bank"), at(1));
            if sign_first {
                assert!(!is(&doubts, 1));
                doubts.record_proof(3, Some(server("bank")), at(2));
            }
            assert_eq!(
                (doubts.reason(2, at(3)), doubts.reason(3, at(3))),
                (Some(DoubtReason::Impostor), None)
            );
        }
        let mut doubts = Doubts::default();
        doubts.record_proof(3, Some(server("bank")), at(0));
        doubts.record_impostor(2, ("bank".to_owned(), 8080), at(1));
        assert!(!is(&doubts, 1), "another port is another server");
    }

    #[test]
    fn who_answers_for_everybody_is_believed_once_the_one_who_was_asked_answers() {
        let mut doubts = Doubts::default();
        doubts.record_impostor(2, server("a"), at(0));
        doubts.record_impostor(2, server("b"), at(0));
        doubts.record_impostor(2, server("c"), at(1));
        doubts.record_connected(2);
        assert_eq!(
            (doubts.reason(2, at(9)), doubts.reason(2, at(10))),
            (Some(DoubtReason::Impostor), None)
        );
        doubts.record_impostor(2, server("a"), at(10));
        assert!(is(&doubts, 29) && !is(&doubts, 30));
        doubts.record_proof(2, None, at(11));
        assert!(!is(&doubts, 11));
    }

    #[test]
    fn signs_and_proofs_are_bounded() {
        let mut doubts = Doubts::default();
        for n in 0..1000 {
            doubts.record_impostor(2, (n.to_string(), 443), at(0));
            doubts.record_unreached(2, (n.to_string(), 443), at(0));
            doubts.record_proof(3, Some((n.to_string(), 443)), at(0));
        }
        assert!(doubts.entries[&2].signs.len() <= MOST_SIGNS && doubts.proofs.len() <= MOST_PROOFS);
    }
}
