//! All that is known of paths, in pages.

use super::{
    Measuring,
    known::{Dispute, Leg},
    state::{Failure, State},
};
use thalweg_measure::{Bound, Estimate, MAX_SPARE_AGE, Method, Metric, Subject};
use thalweg_units::Time;
use thalweg_wire::mesh::{
    Name,
    measure::{
        self as wire, Available, Disagreement, Down, FailedOrder, LegEntry, PathsReply, Spent,
    },
};

/// The most legs of one page: 140 bytes of JSON each, below the 32 MB that clients read.
pub(super) const LEGS: usize = 200_000;

/// A leg as a number that grows in the order of pages.
fn cursor((from, to): Leg) -> u64 {
    u64::from(from) << 32 | u64::from(to)
}

impl Measuring {
    /// The page of at most `most` legs after this cursor. Waits for the table; blocks.
    pub fn paths(&self, after: Option<u64>, most: usize) -> PathsReply {
        let state = self.state.blocking_lock();
        let now = self.now().time;
        let page = state.paths(after, most.clamp(1, LEGS), now);
        PathsReply { measuring: state.measuring(self.config.enabled, now), ..page }
    }
}

impl State {
    fn paths(&self, after: Option<u64>, most: usize, now: Time) -> PathsReply {
        let name = |slot| self.nodes.get(slot).map(|node| node.name.clone());
        let mut page = Page { legs: vec![], after, most, is_cut: false };
        for estimate in self.known.table().iter(now) {
            page.take(&estimate);
        }
        let next = page.next();
        let down = self.presence.down().filter_map(|(slot, down)| {
            Some(Down { node: name(slot)?, why: down.why.clone(), since: now.since(down.since) })
        });
        let disputes = self.known.disputes().rev();
        let legs = page.legs.into_iter();
        let legs = legs.map(|(leg, entry)| LegEntry { rtt_s: self.rtt_s(leg), ..entry });
        PathsReply {
            nodes: self.names(),
            legs: legs.collect(),
            down: down.collect(),
            disagreements: disputes.filter_map(|d| disagreement(d, name, now)).collect(),
            measuring: None,
            next,
        }
    }

    /// What the leg's sender saw last, in whole microseconds lest pages grow by digits that mean nothing.
    fn rtt_s(&self, (from, to): Leg) -> Option<f64> {
        let seen = self.known.live().shown().rtt_s.get(from as usize, to as usize)?;
        Some((f64::from(seen) * 1e6).round() / 1e6)
    }

    /// What holds measuring up. Whoever does not schedule knows no more than that it is off.
    fn measuring(&self, enabled: bool, now: Time) -> Option<wire::Measuring> {
        if !enabled {
            return Some(wire::Measuring::default());
        }
        self.term?;
        let name = |slot| self.nodes.get(slot).map(|node| node.name.clone());
        let spent = |(slot, at): (u32, Option<Time>)| {
            Some(Spent { node: name(slot)?, free_in: at.map(|at| at.since(now)) })
        };
        let failed = self.failed.as_ref().and_then(|failure| {
            let Failure { leg: (from, to), why, at } = failure;
            let (from, to, why) = (name(*from)?, name(*to)?, why.clone());
            Some(FailedOrder { from, to, why, age: now.since(*at) })
        });
        let spent = self.planner.spent(now).into_iter().filter_map(spent).collect();
        Some(wire::Measuring { enabled, spent, failed })
    }

    /// By slot; a free slot is named [`PathsReply::FREE`], and in no leg.
    fn names(&self) -> Vec<Name> {
        let free: Option<Name> = PathsReply::FREE.parse().ok();
        let name = |slot| self.nodes.get(slot).map(|node| node.name.clone()).or(free.clone());
        (0..self.nodes.len()).filter_map(name).collect()
    }
}

fn disagreement(
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
struct Page {
    legs: Vec<(Leg, LegEntry)>,
    after: Option<u64>,
    most: usize,
    is_cut: bool,
}

impl Page {
    /// An estimate of a leg; of several, exact values before bounds, then the youngest.
    fn take(&mut self, estimate: &Estimate) {
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
    fn next(&self) -> Option<u64> {
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
