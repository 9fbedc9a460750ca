//! All known legs, in pages.

use super::estimate_table::{Dispute, Leg};
use thalweg_measure::{Bound, Estimate, MAX_SPARE_AGE, Method, Metric, Subject};
use thalweg_units::Time;
use thalweg_wire::mesh::{
    Name,
    measure::{Available, Disagreement, LegEntry},
};

/// The most legs of one page: 140 bytes of JSON each, so a page stays below the 32 MB that clients read.
pub(super) const LEGS: usize = 200_000;

/// A leg as a number that increases in page order.
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

/// One page of legs, in the order of their cursors.
pub(super) struct LegPage {
    pub legs: Vec<(Leg, LegEntry)>,
    after: Option<u64>,
    most: usize,
    is_cut: bool,
}

impl LegPage {
    /// Creates an empty page for at most `most` legs after this cursor.
    pub fn new(after: Option<u64>, most: usize) -> Self {
        Self { legs: vec![], after, most, is_cut: false }
    }

    /// Adds an estimate of a leg. Of several, exact values win over bounds, then the youngest wins.
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
            // A leg's throughputs come before its available bandwidth: see `Metric`.
            match is_spare {
                true => add_available(known, entry),
                false if (known.at_least, known.age) > (entry.at_least, entry.age) => {
                    *known = entry
                }
                false => {}
            }
            return;
        }
        match self.legs.len() >= self.most {
            true => self.is_cut = true,
            false if is_spare => self.legs.push((leg, available_only(entry))),
            false => self.legs.push((leg, entry)),
        }
    }

    /// The cursor of the next page; `None` if this is the last.
    pub fn next(&self) -> Option<u64> {
        self.legs.last().filter(|_| self.is_cut).map(|(leg, _)| cursor(*leg))
    }
}

/// Adds the available bandwidth found by trains to a known leg; the youngest wins.
fn add_available(known: &mut LegEntry, found: LegEntry) {
    if known.available.as_ref().is_none_or(|other| found.age < other.age) {
        known.available = available(&found);
    }
}

/// An entry for a leg of which only trains have found something. It is one end's report, so planners may only use it as
/// a lower bound.
fn available_only(found: LegEntry) -> LegEntry {
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
