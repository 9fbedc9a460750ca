//! The schedulers that choose the link of the next chunk (DBAS §II-D, 6 and 7; and ours).

mod completion;
mod crowd;
mod rotation;

pub use crowd::Crowd;

use rotation::{RoundRobin, Weighted};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg_units::Rate;

/// A link, as the shell numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// One connection that chunks may go to, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub id: LinkId,
    /// What it delivers; zero: not known, then its first window in a round trip is assumed.
    pub rate: Rate,
    /// Its round trip.
    pub rtt: Duration,
    /// Bytes that were given to it and have not left this host.
    pub unsent: u64,
    /// Whether it takes a chunk now. With a bound on what the kernel queues, that is when a
    /// decision need not be made earlier.
    pub writable: bool,
    /// Whether it may be used: alive, and allowed.
    pub usable: bool,
    /// Whether it may carry what another link carries already.
    pub may_duplicate: bool,
}

/// Ten segments in a round trip, as TCP begins (RFC 6928).
const FIRST_WINDOW: f64 = 14_600.0;

/// A round trip that is not known is taken for this, seconds.
const FIRST_RTT: f64 = 0.1;

impl Link {
    /// Bytes a second.
    pub(crate) fn pace(&self) -> f64 {
        match self.rate.as_bps() {
            0 => FIRST_WINDOW / self.round_trip(),
            bps => bps as f64 / 8.0,
        }
    }

    fn round_trip(&self) -> f64 {
        if self.rtt.is_zero() { FIRST_RTT } else { self.rtt.as_secs_f64() }
    }

    /// Seconds on the way, once it has left.
    pub(crate) fn one_way(&self) -> f64 {
        self.round_trip() / 2.0
    }

    /// Seconds until so many bytes that are given to it now have arrived, all of them.
    pub fn completion(&self, bytes: u64) -> f64 {
        self.unsent.saturating_add(bytes) as f64 / self.pace() + self.one_way()
    }
}

/// A packet-oriented scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StripeMethod {
    /// In rotation (PO Round Robin): waits for whose turn it is.
    RoundRobin,
    /// In rotation weighted by rate (PO Weighted Round Robin).
    WeightedRoundRobin,
    /// Ours: where the chunk arrives first, waiting for a better link where that pays.
    #[default]
    EarliestCompletion,
}

/// What is done with the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to this link.
    Send(LinkId),
    /// It waits until something changes, though a link could take it.
    Wait,
    /// No link takes it now.
    Full,
    /// No link may be used.
    Nobody,
}

impl Verdict {
    /// Whether a stream waits now, that did so `before` or did not.
    #[must_use]
    pub fn waits(self, before: bool) -> bool {
        match self {
            Self::Wait => true,
            Self::Send(_) => false,
            Self::Full | Self::Nobody => before,
        }
    }
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes of the next chunk.
    pub chunk: u64,
    /// Bytes that are still to be sent, as far as is known, this chunk's among them.
    pub backlog: u64,
    /// Bytes that the far end still takes beyond what was sent.
    pub window: u64,
    /// Whether its stream waits already ([`Verdict::waits`]): that is not given up for little.
    pub waits: bool,
}

/// Assigns chunks.
#[derive(Clone, Debug)]
pub struct StripeScheduler(Kind);

#[derive(Clone, Debug)]
enum Kind {
    RoundRobin(RoundRobin),
    Weighted(Weighted),
    Completion,
}

impl StripeScheduler {
    /// By this method.
    pub fn new(method: StripeMethod) -> Self {
        Self(match method {
            StripeMethod::RoundRobin => Kind::RoundRobin(RoundRobin::default()),
            StripeMethod::WeightedRoundRobin => Kind::Weighted(Weighted::default()),
            StripeMethod::EarliestCompletion => Kind::Completion,
        })
    }

    /// What is done with the next chunk. After `Send` it is on that link: the next call is about
    /// the chunk after it.
    pub fn next(&mut self, links: &[Link], load: Load) -> Verdict {
        if !links.iter().any(|link| link.usable) {
            return Verdict::Nobody;
        }
        match &mut self.0 {
            Kind::RoundRobin(rotation) => rotation.next(links),
            Kind::Weighted(weighted) => weighted.next(links),
            Kind::Completion => completion::next(links, load),
        }
    }
}

#[cfg(test)]
mod tests;
