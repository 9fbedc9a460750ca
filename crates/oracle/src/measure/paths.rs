//! All that is known of paths, in pages.

use super::known::{Dispute, Leg};
use thalweg_measure::{Bound, Estimate, MAX_SPARE_AGE, Method, Metric, Subject};
use thalweg_units::Time;
use thalweg_wire::mesh::{
    Name,
    measure::{Available, Disagreement, LegEntry},
};

/// The most legs of one page: 140 bytes of JSON each, below the 32 MB that clients read.
pub(super) const LEGS: usize = 200_000;

/// A leg as a number that grows in the order of pages.
fn cursor((from, to): Leg) -> u64 {
    u64::from(from) << 32 | u64::from(to)
}

pub(super) fn disagreement(
    dispute: &Dispute,
    name: impl Fn(u32) -> Option<Name>,
    now: Time,
) -> Option<Disagreement> {
    Some(Disagreement {
        from: name(dispute.leg.0)?,
        to: name(dispute.leg.1)?,
        claimed_bps: dispute.claimed,
        by: name(dispute.by)?,
        seen_bps: dispute.seen,
        believed_bps: dispute.believed,
        age: now.since(dispute.at),
    })
}

/// Legs in the order of their cursors.
pub(super) struct Page {
    pub legs: Vec<(Leg, LegEntry)>,
    after: Option<u64>,
    most: usize,
    is_cut: bool,
}

impl Page {
    /// An empty one of at most `most` legs after this cursor.
    pub fn new(after: Option<u64>, most: usize) -> Self {
        Self { legs: vec![], after, most, is_cut: false }
    }

    /// An estimate of a leg; of several, exact values before bounds, then the youngest.
    pub fn take(&mut self, estimate: &Estimate) {
        let Subject::Leg { from, to } = estimate.subject else { return };
        let leg = (from.node.0, to.0);
        if self.after.is_some_and(|after| cursor(leg) <= after) {
            return;
        }
        let is_spare = match estimate.metric {
            Metric::Throughput => false,
            Metric::AvailableBandwidth if estimate.age <= MAX_SPARE_AGE => true,
            _ => return,
        };
        let entry = entry(leg, estimate);
        if let Some((last, known)) = self.legs.last_mut()
            && *last == leg
        {
            // A leg's throughputs come first: see `Metric`.
            match is_spare {
                true => add(known, entry),
                false if (known.at_least, known.age) > (entry.at_least, entry.age) => {
                    *known = entry
                }
                false => {}
            }
            return;
        }
        match self.legs.len() >= self.most {
            true => self.is_cut = true,
            false if is_spare => self.legs.push((leg, alone(entry))),
            false => self.legs.push((leg, entry)),
        }
    }

    /// Where the next page begins, if there is one.
    pub fn next(&self) -> Option<u64> {
        self.legs.last().filter(|_| self.is_cut).map(|(leg, _)| cursor(*leg))
    }
}

/// What trains found, beside what is known else; the youngest.
fn add(known: &mut LegEntry, found: LegEntry) {
    if known.available.as_ref().is_none_or(|other| found.age < other.age) {
        known.available = available(&found);
    }
}

/// What trains found where nothing else is known. One end's word: no more than a lower bound for who plans.
fn alone(found: LegEntry) -> LegEntry {
    LegEntry { available: available(&found), at_least: true, ..found }
}

fn available(found: &LegEntry) -> Option<Available> {
    let LegEntry { bps, spread_bps, at_least, age, .. } = *found;
    Some(Available { bps, spread_bps, at_least, age })
}

fn entry(leg: Leg, estimate: &Estimate) -> LegEntry {
    let method = match estimate.method {
        Method::Transfer => "transfer",
        Method::Sampling => "sampling",
        Method::Passive => "passive",
        Method::TcpInfo => "tcp_info",
        Method::Train => "train",
    };
    LegEntry {
        from: leg.0,
        to: leg.1,
        bps: estimate.value,
        spread_bps: estimate.spread,
        method: method.into(),
        at_least: estimate.bound == Bound::AtLeast,
        rtt_s: None,
        age: estimate.age,
        available: None,
    }
}
