//! Which way a connection goes: the contract between the proxy and whoever knows of paths.

use crate::candidates::Candidate;
use crate::{history::Observed, url::HttpUrl};
use std::{num::NonZeroU32, time::Duration};
use thalweg_net::Route;
use thalweg_plan::selection::Prior;
use thalweg_wire::Destination;

/// How much later than the first way another one begins if nothing better is known: twice
/// the head start of one address over the next (RFC 8305 §5), which the first way needs itself.
pub const LATER: Duration = Duration::from_millis(500);

/// What the path called `direct` is called.
pub const DIRECT: &str = "direct";

/// What is sent: decides how legs to relays are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Readable to whoever carries it: legs must be sealed.
    Clear,
    /// Encrypted by the programs at its ends: legs may be open.
    Encrypted,
}

/// Encrypted protocols by their ports: HTTPS, DNS, IMAP, POP and SMTP over TLS, and SSH.
const ENCRYPTED: [u16; 6] = [443, 853, 993, 995, 465, 22];

impl Content {
    /// Of a tunnel to this port, whose bytes nobody has looked at: unless an encrypted protocol has the port, they may
    /// be readable.
    pub fn of_port(port: u16) -> Self {
        if ENCRYPTED.contains(&port) { Self::Encrypted } else { Self::Clear }
    }
}

/// One way to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// What users know it by: `direct`, a relay, a chain.
    pub name: String,
    /// How to dial.
    pub route: Route,
    /// When its attempt begins, after the first one's; at once if an earlier one failed.
    pub after: Duration,
    /// What the far end may send ahead of who reads, bytes; `None`: as the dialler has it.
    pub ahead: Option<usize>,
}

impl Way {
    /// The direct one, at once.
    pub fn direct() -> Self {
        Self { name: DIRECT.to_owned(), route: Route::direct(), after: Duration::ZERO, ahead: None }
    }
}

/// The ways that are raced, in the order in which they begin; the direct one is among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice(Vec<Way>);

impl Choice {
    /// The direct way alone.
    pub fn direct() -> Self {
        Self(vec![Way::direct()])
    }

    /// These ways, sorted by when they begin. If the direct one is not among them it comes
    /// last, `LATER` than the one before, so that nothing fails that works directly.
    pub fn of(mut ways: Vec<Way>) -> Self {
        ways.sort_by_key(|way| way.after);
        if !ways.iter().any(|way| way.route.is_direct()) {
            let after = ways.last().map_or(Duration::ZERO, |way| way.after + LATER);
            ways.push(Way { after, ..Way::direct() });
        }
        Self(ways)
    }

    /// These ways alone, sorted by when they begin.
    pub fn only(mut ways: Vec<Way>) -> Self {
        ways.sort_by_key(|way| way.after);
        Self(ways)
    }

    /// The ways.
    pub fn ways(&self) -> &[Way] {
        &self.0
    }

    /// Without the detour of this name.
    #[must_use]
    pub fn without(self, name: Option<&str>) -> Self {
        let kept = |way: &Way| way.route.is_direct() || Some(&*way.name) != name;
        Self(self.0.into_iter().filter(kept).collect())
    }

    /// The ways by relays leave by this interface, but for bonds, which go by what they may, and those that ride.
    #[must_use]
    pub fn relayed_by(mut self, interface: Option<NonZeroU32>) -> Self {
        let Some(interface) = interface else { return self };
        let relayed = |way: &&mut Way| !way.route.is_direct() && !way.route.is_carried();
        for way in self.0.iter_mut().filter(relayed) {
            way.route = way.route.clone().by_interface(interface);
        }
        self
    }

    /// The ways, in the order in which they begin.
    pub fn into_ways(self) -> Vec<Way> {
        self.0
    }
}

/// The paths over which a large object is fetched in ranges.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// At least one; the direct one first.
    pub paths: Vec<Candidate>,
    /// What is expected of them, in their order; may be shorter.
    pub priors: Vec<Option<Prior>>,
}

/// What a transfer saw of one way.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// It carried this much; the rate is a lower bound unless `observed.bound` is exact.
    Carried(&'a Observed),
    /// No connection came about by it, or nothing came back.
    Failed(&'a str),
    /// Altered bytes came by it.
    Altered {
        /// The path's name.
        path: &'a str,
        /// What was seen, for people.
        why: &'a str,
    },
}

/// Who knows which paths are good. Asked for each new connection: it must answer at once.
pub trait PathChooser: Send + Sync {
    /// The ways to try for a connection to `to`.
    fn choose(&self, to: &Destination, content: Content) -> Choice;

    /// The paths for a large object at `url`.
    fn candidates(&self, url: &HttpUrl) -> Candidates;

    /// Takes in what a transfer to `to` saw.
    fn learn(&self, to: &Destination, content: Content, seen: Seen<'_>);

    /// Whether connections by this route may live on: no relay of it has been revoked.
    fn may_go_on(&self, _: &Route) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(name: &str, after: u64) -> Way {
        let route = Route::through([format!("{name}.example:1080").parse().unwrap()]).unwrap();
        let after = Duration::from_millis(after);
        Way { name: name.to_owned(), route, after, ahead: None }
    }

    #[test]
    fn the_direct_way_is_always_among_those_that_are_tried() {
        let choice = Choice::of(vec![way("b", 100), way("a", 0)]);
        let names: Vec<_> = choice.ways().iter().map(|w| w.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "direct"]);
        assert_eq!(choice.ways()[2].after, Duration::from_millis(100) + LATER);
        assert_eq!(Choice::of(Vec::new()), Choice::direct());
    }
}
