//! The core of the measurement overlay (MGRP §3.2): which link a node measures next, and how.
//!
//! Links in use are measured often, as ranges; idle links seldom and roughly; and where a ranking depends on two links,
//! TCP decides. Each question is answered by the cheapest [`LinkMethod`] that fits into the node's remaining bytes. The
//! module is pure: the caller says what is known and how old it is.
//!
//! Difference from the paper: its overlay measures all links with pathload, whatever their traffic.

mod cost;

pub use cost::{LinkMethod, cost_without_riders};

use crate::Bound;
use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// Limits on the age and the width of what is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverlaySettings {
    /// The maximum age for links in use.
    pub used: Duration,
    /// The maximum age for idle links.
    pub unused: Duration,
    /// If the ranges of two links overlap by more than this share of the better one's value, TCP measures them once
    /// more.
    pub overlap: f64,
    /// The share of the remaining bytes that a measurement of an idle link may cost.
    pub share: f64,
}

impl Default for OverlaySettings {
    /// One minute, which pathload takes with the public tool's pauses; half an hour; a tenth; a quarter.
    fn default() -> Self {
        let (used, unused) = (Duration::from_secs(60), Duration::from_secs(1800));
        Self { used, unused, overlap: 0.1, share: 0.25 }
    }
}

/// The newest knowledge of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkEstimate {
    /// The lower end of the range, bit/s; equal to `high` for a single value.
    pub low: f64,
    /// The upper end of the range, bit/s.
    pub high: f64,
    /// Whether the true value may be larger.
    pub bound: Bound,
    /// How it was measured.
    pub how: LinkMethod,
    /// Time since the measurement.
    pub age: Duration,
}

impl LinkEstimate {
    fn middle(&self) -> f64 {
        f64::midpoint(self.low, self.high)
    }

    /// Whether the value is a throughput of TCP.
    fn is_tcp_throughput(&self) -> bool {
        matches!(self.how, LinkMethod::Passive | LinkMethod::Bulk)
    }
}

/// A link from this node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    pub traffic: Rate,
    /// The part of the traffic that may ride in trains.
    pub riding: Rate,
    /// The newest measurement; `None`: there is none.
    pub known: Option<LinkEstimate>,
    /// The highest rate that TCP has reached there; zero: unknown.
    pub tcp: Rate,
    /// The bytes that the previous trains there cost; zero: there were none.
    pub paid: ByteSize,
    /// Links with the same number are ranked against each other, e.g. alternative routes to one destination.
    pub rivals: Option<u32>,
}

impl Link {
    /// Whether the link carries enough traffic to count as used: a byte per second is a keep-alive.
    fn is_used(&self) -> bool {
        self.traffic >= LEAST_USE
    }
}

/// A link with less traffic is idle.
const LEAST_USE: Rate = Rate::from_bps(10_000);

/// What a measurement has to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// A rough value, for links that might be used one day.
    Rough,
    /// A range, for links in use.
    Range,
    /// The throughput of TCP, because a ranking depends on it.
    Decisive,
}

/// The next measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextMeasurement {
    /// The link's index in the given list.
    pub link: usize,
    pub question: Question,
    pub how: LinkMethod,
    /// The expected cost without riders.
    pub bytes: ByteSize,
    /// The limit on its cost, whatever the link turns out to be.
    pub most: ByteSize,
}

/// The next measurement that is worth its bytes, if `left` bytes remain; `None`: there is none.
///
/// Links on which a ranking depends come first, then links in use, the oldest knowledge first, then the others.
pub fn next_measurement(
    links: &[Link],
    left: ByteSize,
    settings: &OverlaySettings,
) -> Option<NextMeasurement> {
    let mut asked: Vec<(usize, Question)> = Vec::new();
    for (at, link) in links.iter().enumerate() {
        asked.extend(
            question(at, links, settings)
                .filter(|_| !answers_itself(link, settings))
                .map(|q| (at, q)),
        );
    }
    // A link that was never measured counts as the oldest.
    let age = |at: usize| links[at].known.map_or(Duration::MAX, |known| known.age);
    asked.sort_by_key(|(at, question)| (std::cmp::Reverse((*question, age(*at))), *at));
    asked
        .into_iter()
        .find_map(|(link, question)| order(link, question, &links[link], left, settings))
}

fn order(
    at: usize,
    question: Question,
    link: &Link,
    left: ByteSize,
    settings: &OverlaySettings,
) -> Option<NextMeasurement> {
    let (how, bytes) = cost::cheapest(question, link)?;
    let share = if question == Question::Rough { settings.share } else { 1.0 };
    let most = ByteSize::from_bytes((left.as_bytes() as f64 * share) as u64);
    (bytes <= most).then_some(NextMeasurement { link: at, question, how, bytes, most })
}

/// Whether the link's own traffic suffices: a recent passive sample that only the path limited.
fn answers_itself(link: &Link, settings: &OverlaySettings) -> bool {
    link.known.is_some_and(|known| {
        known.how == LinkMethod::Passive && known.bound == Bound::Exact && known.age < settings.used
    })
}

/// The open question about a link, if there is one.
fn question(at: usize, links: &[Link], settings: &OverlaySettings) -> Option<Question> {
    let link = &links[at];
    let longest = if link.is_used() { settings.used } else { settings.unused };
    let is_old = link.known.is_none_or(|known| known.age >= longest);
    match (is_old, link.is_used()) {
        (true, true) => Some(Question::Range),
        (true, false) => Some(Question::Rough),
        (false, _) => hinges(at, links, settings).then_some(Question::Decisive),
    }
}

/// Whether a ranking depends on this link: it is one of the best two of its rivals, their ranges leave the order open,
/// and its value is not TCP's own. Lower bounds leave the order open, too. `at`: the link's index.
pub fn hinges(at: usize, links: &[Link], settings: &OverlaySettings) -> bool {
    let link = &links[at];
    let (Some(known), Some(rivals)) = (link.known, link.rivals) else { return false };
    // No measurement improves on TCP's own throughput.
    if known.is_tcp_throughput() {
        return false;
    }
    let others = links
        .iter()
        .enumerate()
        .filter(|(other, link)| *other != at && link.rivals == Some(rivals));
    let mut others: Vec<LinkEstimate> = others.filter_map(|(_, link)| link.known).collect();
    others.sort_by(|one, other| other.middle().total_cmp(&one.middle()));
    // A link with two better rivals is not one of the best two.
    let is_third = others.get(1).is_some_and(|second| second.middle() > known.middle());
    let best = others.first().copied().filter(|_| !is_third);
    best.is_some_and(|best| {
        let overlap = reach(&known).min(reach(&best)) - known.low.max(best.low);
        overlap > settings.overlap * known.middle().max(best.middle())
    })
}

/// The largest possible value.
fn reach(known: &LinkEstimate) -> f64 {
    if known.bound == Bound::AtLeast { f64::INFINITY } else { known.high }
}

#[cfg(test)]
mod tests;
