//! The measurement overlay's core (MGRP §3.2): which of its links a node measures next, and how.
//!
//! Links that are used are to be known as ranges, and often; a sample of the others roughly, and seldom; and where a ranking
//! hinges on two links, what TCP gets there. Each question has the cheapest [`How`] that answers it, within what is left of
//! the node's bytes. All of it is pure: whoever asks says what is known and how old it is.
//!
//! Where this differs from the paper: its overlay measures all links with pathload, whatever travels there.

mod cost;

pub use cost::{How, bare};

use crate::Bound;
use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// When knowledge is too old, and what is too wide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverlaySettings {
    /// Of links that are used.
    pub used: Duration,
    /// Of those that are not.
    pub unused: Duration,
    /// Two links whose ranges overlap by more than this share of the better one's value are asked for once more, by TCP.
    pub overlap: f64,
    /// Links that are not used have this share of what is left, together.
    pub share: f64,
}

impl Default for OverlaySettings {
    /// A minute, as pathload takes with the public tool's pauses, and half an hour; a tenth; a quarter.
    fn default() -> Self {
        let (used, unused) = (Duration::from_secs(60), Duration::from_secs(1800));
        Self { used, unused, overlap: 0.1, share: 0.25 }
    }
}

/// What is known of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// The range, bit/s; both the same where there is one value.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Whether the true value may be larger.
    pub bound: Bound,
    /// How.
    pub how: How,
    /// How long ago.
    pub age: Duration,
}

impl Known {
    fn middle(&self) -> f64 {
        f64::midpoint(self.low, self.high)
    }

    /// Whether TCP told it.
    fn is_tcps(&self) -> bool {
        matches!(self.how, How::Passive | How::Bulk)
    }
}

/// A link from this node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// What travels there now.
    pub traffic: Rate,
    /// What of it may ride in trains.
    pub riding: Rate,
    /// The newest that is known; `None`: nothing.
    pub known: Option<Known>,
    /// The most that TCP has reached there; zero: it has told nothing.
    pub tcp: Rate,
    /// What trains there cost the last time; zero: there were none.
    pub paid: ByteSize,
    /// Links with the same number are ranked against each other, e.g. ways to one destination.
    pub rivals: Option<u32>,
}

impl Link {
    /// Whether anything worth naming travels there: a byte in a second is a sign of life, and no use.
    fn is_used(&self) -> bool {
        self.traffic >= LEAST_USE
    }
}

/// A link that carries less is not used.
const LEAST_USE: Rate = Rate::from_bps(10_000);

/// What is to be found out of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// What about there is, for links that might be used one day.
    Rough,
    /// Between what and what, for links that are.
    Range,
    /// What TCP gets: a ranking hinges on it.
    Decisive,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// Which link, as in the list that was given.
    pub link: usize,
    /// Why.
    pub question: Question,
    /// How.
    pub how: How,
    /// What it will cost about, without riders.
    pub bytes: ByteSize,
    /// What it may cost and no more, whatever the link turns out to be.
    pub most: ByteSize,
}

/// The next measurement that is worth its bytes, of which so many are left; `None`: there is none.
///
/// Rankings that hinge come first, then links that are used, the oldest knowledge before the newer, then the others.
pub fn next(links: &[Link], left: ByteSize, settings: &OverlaySettings) -> Option<Order> {
    let mut asked: Vec<(usize, Question)> = Vec::new();
    for (at, link) in links.iter().enumerate() {
        asked.extend(
            question(at, links, settings)
                .filter(|_| !answers_itself(link, settings))
                .map(|q| (at, q)),
        );
    }
    // What was never known is the oldest.
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
) -> Option<Order> {
    let (how, bytes) = cost::cheapest(question, link)?;
    let share = if question == Question::Rough { settings.share } else { 1.0 };
    let most = ByteSize::from_bytes((left.as_bytes() as f64 * share) as u64);
    (bytes <= most).then_some(Order { link: at, question, how, bytes, most })
}

/// Whether its own traffic tells it: a fresh passive sample that the path alone held back.
fn answers_itself(link: &Link, settings: &OverlaySettings) -> bool {
    link.known.is_some_and(|known| {
        known.how == How::Passive && known.bound == Bound::Exact && known.age < settings.used
    })
}

/// What is not known of a link, and should be.
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

/// Whether it is one of the best two of its rivals, whose order their ranges leave open, and which of them TCP has not
/// told of. Values that may be larger leave it open, too. `at`: its place among the links.
pub fn hinges(at: usize, links: &[Link], settings: &OverlaySettings) -> bool {
    let link = &links[at];
    let (Some(known), Some(rivals)) = (link.known, link.rivals) else { return false };
    // Nothing is more than TCP's own word.
    if known.is_tcps() {
        return false;
    }
    let others = links
        .iter()
        .enumerate()
        .filter(|(other, link)| *other != at && link.rivals == Some(rivals));
    let mut others: Vec<Known> = others.filter_map(|(_, link)| link.known).collect();
    others.sort_by(|one, other| other.middle().total_cmp(&one.middle()));
    // Behind the best of the others it is one of the two only if it is second.
    let is_third = others.get(1).is_some_and(|second| second.middle() > known.middle());
    let best = others.first().copied().filter(|_| !is_third);
    best.is_some_and(|best| {
        let overlap = reach(&known).min(reach(&best)) - known.low.max(best.low);
        overlap > settings.overlap * known.middle().max(best.middle())
    })
}

/// How large the value may be.
fn reach(known: &Known) -> f64 {
    if known.bound == Bound::AtLeast { f64::INFINITY } else { known.high }
}

#[cfg(test)]
mod tests;
