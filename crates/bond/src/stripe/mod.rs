//! The schedulers that choose the link of the next chunk (DBAS §II-D, 6 and 7; and our own).

mod completion;
mod rotation;
#[cfg(test)]
mod tests;

use rotation::{RoundRobin, Weighted};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg_units::Rate;

/// A link, as numbered by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// The present state of one connection that chunks may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub id: LinkId,
    /// The rate at which it delivers; zero: unknown, then its initial window per round trip is assumed.
    pub rate: Rate,
    /// Its round trip; zero: unknown.
    pub rtt: Duration,
    /// Bytes that were assigned to it and have not left this host.
    pub unsent: u64,
    /// Whether it accepts a chunk now. With a bound on what the kernel queues, no decision has to be made earlier.
    pub writable: bool,
    /// Whether it may be used: it is alive and allowed.
    pub usable: bool,
    /// Whether it may carry a chunk that another link already carries.
    pub may_duplicate: bool,
}

/// The bytes that TCP sends in its first round trip: ten segments (RFC 6928).
const FIRST_WINDOW: f64 = 14_600.0;

/// The assumed round trip if it is unknown, seconds.
const FIRST_RTT: f64 = 0.1;

impl Link {
    /// Bytes per second.
    pub(crate) fn pace(&self) -> f64 {
        match self.rate.as_bps() {
            0 => FIRST_WINDOW / self.round_trip(),
            bps => bps as f64 / 8.0,
        }
    }

    fn round_trip(&self) -> f64 {
        if self.rtt.is_zero() { FIRST_RTT } else { self.rtt.as_secs_f64() }
    }

    /// Seconds on the path, after leaving this host.
    pub(crate) fn one_way(&self) -> f64 {
        self.round_trip() / 2.0
    }

    /// Seconds until this many bytes that are assigned now have all arrived.
    pub fn completion(&self, bytes: u64) -> f64 {
        self.unsent.saturating_add(bytes) as f64 / self.pace() + self.one_way()
    }
}

/// A packet-oriented scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StripeMethod {
    /// In rotation (PO Round Robin): waits for the link whose turn it is.
    RoundRobin,
    /// In rotation weighted by rate (PO Weighted Round Robin).
    WeightedRoundRobin,
    /// Our own: the link on which the chunk arrives first; waits for a better link if that pays.
    #[default]
    EarliestCompletion,
}

/// The decision on the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The chunk goes to this link.
    Send(LinkId),
    /// The chunk waits until something changes, although a link could take it.
    Wait,
    /// No link accepts the chunk now.
    Full,
    /// No link may be used.
    NoLink,
}

impl Verdict {
    /// Whether a stream waits now, given whether it waited `before`.
    #[must_use]
    pub fn waits(self, before: bool) -> bool {
        match self {
            Self::Wait => true,
            Self::Send(_) => false,
            Self::Full | Self::NoLink => before,
        }
    }
}

/// The data that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The size of the next chunk, bytes.
    pub chunk: u64,
    /// Bytes that are still to be sent as far as is known, including this chunk.
    pub backlog: u64,
    /// Bytes that the far end still accepts beyond those sent.
    pub window: u64,
    /// Whether its stream waits already ([`Verdict::waits`]): a wait is not given up for a small gain.
    pub waits: bool,
}

/// Assigns chunks to links.
#[derive(Clone, Debug)]
pub struct StripeScheduler(Kind);

#[derive(Clone, Debug)]
enum Kind {
    RoundRobin(RoundRobin),
    Weighted(Weighted),
    Completion,
}

impl StripeScheduler {
    /// Creates a scheduler with this method.
    pub fn new(method: StripeMethod) -> Self {
        Self(match method {
            StripeMethod::RoundRobin => Kind::RoundRobin(RoundRobin::default()),
            StripeMethod::WeightedRoundRobin => Kind::Weighted(Weighted::default()),
            StripeMethod::EarliestCompletion => Kind::Completion,
        })
    }

    /// Decides on the next chunk. After `Send` it counts as sent on that link: the next call is about the chunk after
    /// it.
    pub fn next(&mut self, links: &[Link], load: Load) -> Verdict {
        if !links.iter().any(|link| link.usable) {
            return Verdict::NoLink;
        }
        match &mut self.0 {
            Kind::RoundRobin(rotation) => rotation.next(links),
            Kind::Weighted(weighted) => weighted.next(links),
            Kind::Completion => completion::next(links, load),
        }
    }
}

/// The data that all streams have to send. They take turns, so that each has its part of every link, and neither its
/// end nor the end of its window comes as soon as if it were alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLoads {
    streams: u64,
    backlog: u64,
    window: u64,
}

impl StreamLoads {
    /// Adds a stream with `backlog` bytes to send, and `window` bytes that the far end still accepts.
    pub fn add(&mut self, backlog: u64, window: u64) {
        self.streams += 1;
        self.backlog = self.backlog.saturating_add(backlog);
        self.window = self.window.saturating_add(window);
    }

    /// The load of a stream among all streams: with its own bytes, as many of each other stream are sent, as far as
    /// those have any.
    #[must_use]
    pub fn load(&self, own: Load) -> Load {
        let among = |own: u64, all: u64| own.saturating_mul(self.streams).min(all).max(own);
        Load {
            backlog: among(own.backlog, self.backlog),
            window: among(own.window, self.window),
            ..own
        }
    }
}
