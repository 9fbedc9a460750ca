//! The interface between the proxy and a chooser of paths: which ways a connection tries.

use crate::candidates::Candidate;
use crate::{history::PathObservation, url::HttpUrl};
use std::{num::NonZeroU32, time::Duration};
use thalweg_net::Route;
use thalweg_plan::selection::Prior;
use thalweg_wire::Destination;

/// How much later than the first way another one begins by default: twice the head start of one address over the next
/// (RFC 8305 §5), which the first way itself needs.
pub const LATER: Duration = Duration::from_millis(500);

/// The name of the direct path.
pub const DIRECT: &str = "direct";

/// Whether the traffic is encrypted. Determines how legs to relays are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Readable on the way: legs must be sealed.
    Clear,
    /// Encrypted end to end by the programs: legs may be open.
    Encrypted,
    /// Probably encrypted, since a program asked for a tunnel, but to a port of no encrypted protocol: legs must be
    /// sealed.
    Unknown,
}

/// The ports of encrypted protocols: HTTPS, DNS, IMAP, POP and SMTP over TLS, and SSH.
const ENCRYPTED: [u16; 6] = [443, 853, 993, 995, 465, 22];

impl Content {
    /// The content of a SOCKS5 connection to this port, whose bytes are not inspected: readable, unless an encrypted
    /// protocol has the port.
    pub fn of_port(port: u16) -> Self {
        if ENCRYPTED.contains(&port) { Self::Encrypted } else { Self::Clear }
    }

    /// The content of a tunnel that was asked for with `CONNECT`.
    pub fn of_tunnel(port: u16) -> Self {
        if ENCRYPTED.contains(&port) { Self::Encrypted } else { Self::Unknown }
    }
}

/// One path that is tried for a connection to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathAttempt {
    /// Its name for users: `direct`, a relay, a chain.
    pub name: String,
    pub route: Route,
    /// When its attempt begins after the first one's; at once if an earlier one failed.
    pub after: Duration,
    /// How many bytes the far end may send before they are read; `None`: the dialler's default.
    pub ahead: Option<usize>,
}

impl PathAttempt {
    /// The direct path, which begins at once.
    pub fn direct() -> Self {
        Self { name: DIRECT.to_owned(), route: Route::direct(), after: Duration::ZERO, ahead: None }
    }
}

/// The paths that are raced for a connection, in the order in which their attempts begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRace(Vec<PathAttempt>);

impl PathRace {
    /// The direct path alone.
    pub fn direct() -> Self {
        Self(vec![PathAttempt::direct()])
    }

    /// Creates a race of these paths, sorted by when they begin. If the direct path is not among them, it is added as
    /// the last one, `LATER` after the one before, so that a destination that works directly does not fail.
    pub fn with_direct(mut ways: Vec<PathAttempt>) -> Self {
        ways.sort_by_key(|way| way.after);
        if !ways.iter().any(|way| way.route.is_direct()) {
            let after = ways.last().map_or(Duration::ZERO, |way| way.after + LATER);
            ways.push(PathAttempt { after, ..PathAttempt::direct() });
        }
        Self(ways)
    }

    /// Creates a race of these paths only, sorted by when they begin.
    pub fn only(mut ways: Vec<PathAttempt>) -> Self {
        ways.sort_by_key(|way| way.after);
        Self(ways)
    }

    /// The paths to try, in the order of their start.
    pub fn attempts(&self) -> &[PathAttempt] {
        &self.0
    }

    /// Removes the detour of this name.
    #[must_use]
    pub fn remove_detour(self, name: Option<&str>) -> Self {
        let kept = |way: &PathAttempt| way.route.is_direct() || Some(&*way.name) != name;
        Self(self.0.into_iter().filter(kept).collect())
    }

    /// Binds the ways through relays to this interface, except carried ones and bonds, which use their own interfaces.
    #[must_use]
    pub fn bind_detours(mut self, interface: Option<NonZeroU32>) -> Self {
        let Some(interface) = interface else { return self };
        let relayed = |way: &&mut PathAttempt| !way.route.is_direct() && !way.route.is_carried();
        for way in self.0.iter_mut().filter(relayed) {
            way.route = way.route.clone().by_interface(interface);
        }
        self
    }

    /// The attempts, in the order in which they begin.
    pub fn into_attempts(self) -> Vec<PathAttempt> {
        self.0
    }
}

/// The paths over which a large object is fetched in ranges.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// At least one; the direct one first.
    pub paths: Vec<Candidate>,
    /// What is expected of the paths, in their order; may be shorter.
    pub priors: Vec<Option<Prior>>,
}

/// What a transfer observed of one path.
#[derive(Clone, Copy, Debug)]
pub enum PathReport<'a> {
    /// It carried data. The rate is a lower bound unless `observed.bound` is exact.
    Carried(&'a PathObservation),
    /// No connection could be made over it, or nothing was received.
    Failed(&'a str),
    /// It delivered altered bytes.
    Altered {
        path: &'a str,
        /// A description for people.
        why: &'a str,
    },
}

/// Chooses paths. Called for each new connection, so it must return at once.
pub trait PathChooser: Send + Sync {
    /// The ways to try for a connection to `to`.
    fn choose(&self, to: &Destination, content: Content) -> PathRace;

    /// The paths for a large object at `url`.
    fn candidates(&self, url: &HttpUrl) -> Candidates;

    /// Learns from what a transfer to `to` observed.
    fn learn(&self, to: &Destination, content: Content, seen: PathReport<'_>);

    /// Whether connections over this route may continue: none of its relays was revoked.
    fn may_go_on(&self, _: &Route) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(name: &str, after: u64) -> PathAttempt {
        let route = Route::through([format!("{name}.example:1080").parse().unwrap()]).unwrap();
        let after = Duration::from_millis(after);
        PathAttempt { name: name.to_owned(), route, after, ahead: None }
    }

    #[test]
    fn the_direct_way_is_added_if_it_is_missing() {
        let choice = PathRace::with_direct(vec![way("b", 100), way("a", 0)]);
        let names: Vec<_> = choice.attempts().iter().map(|w| w.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "direct"]);
        assert_eq!(choice.attempts()[2].after, Duration::from_millis(100) + LATER);
        assert_eq!(PathRace::with_direct(Vec::new()), PathRace::direct());
    }
}
