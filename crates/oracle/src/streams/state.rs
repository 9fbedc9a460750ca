//! The reports of members, in memory.

use super::members::Members;
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::streams::{LegView, Rules, Sent, Trains};
use thalweg_units::{NodeId, Time};
use thalweg_wire::{
    mesh::{Name, Roster},
    stream::plan::{LegReport, Measured, NameHolder, Published, Report, SILENCE, Subscription},
};

/// The most members whose streams are planned; the scheduler has tables of all pairs.
pub(super) const MOST_MEMBERS: usize = 1000;

/// The most streams.
pub(super) const MOST_STREAMS: usize = 4096;

/// The most subscriptions.
pub(super) const MOST_SUBSCRIPTIONS: usize = 32_768;

/// The most legs with state, at about 1 kB each.
const MOST_LEGS: usize = 65_536;

/// Whether a member with `own` streams, subscriptions or legs may have another, if there are `all` of them. Half of the
/// bound is divided equally among the members, and the other half goes to whoever comes first.
const fn has_room(own: usize, all: usize, most: usize) -> bool {
    own < most / 2 / MOST_MEMBERS || all < most / 2
}

/// How long after its election an oracle gives a name to the member whose stream ran before. A node that found no
/// oracle tries again after at most 16 s.
pub(super) const CLAIM_TIME: Duration = Duration::from_secs(30);

/// How long a leg is avoided after one of its ends has reported it as broken; doubled by each further failure.
const DOWN: Duration = Duration::from_secs(10);

/// The longest time that a leg is avoided: some pairs of members can never reach each other, but a member whose network
/// was down is used again soon.
const MAX_DOWN: Duration = Duration::from_secs(120);

/// The most refusals that are listed in a reply; the rest are counted.
const REASONS: usize = 16;

/// The sender and the receiver of a leg.
pub(super) type LegEnds = (NodeId, NodeId);

/// The last report of a member.
#[derive(Debug)]
pub(super) struct LastReport {
    pub heard: Time,
    pub report: Report,
}

/// The state of one leg.
#[derive(Debug, Default)]
pub(super) struct LegState {
    pub view: LegView,
    pub delay: Option<Duration>,
    /// Its failures since it last worked; `None`: there are none.
    down: Option<LegFailures>,
    /// What the plan in force sends over it, bit/s.
    pub carries: u64,
    /// When its sender was asked to measure it; `None`: it has been measured since, or was never asked for.
    pub asked: Option<Time>,
}

/// The failures of a leg in a row.
#[derive(Clone, Copy, Debug)]
struct LegFailures {
    /// The last report that it is broken.
    at: Time,
    /// How often it was avoided.
    failures: u32,
}

impl LegFailures {
    /// Whether the leg is still avoided.
    fn is_avoided(&self, now: Time) -> bool {
        let factor = 1_u32.checked_shl(self.failures.saturating_sub(1)).unwrap_or(u32::MAX);
        now.since(self.at) < DOWN.saturating_mul(factor).min(MAX_DOWN)
    }
}

impl LegState {
    /// Records a report that it is broken. Returns whether it was not avoided before. Reports while it is avoided count
    /// as the same failure.
    fn fail(&mut self, now: Time) -> bool {
        let before = self.down;
        let is_new = before.is_none_or(|down| !down.is_avoided(now));
        let failures = before.map_or(0, |down| down.failures).saturating_add(is_new.into());
        self.down = Some(LegFailures { at: now, failures });
        // A dying leg sends less and less. That is no rate to plan with once it works again.
        self.view.forget_passive();
        is_new
    }

    /// Records a sign at this time that it works.
    fn work(&mut self, at: Time) {
        self.down = self.down.filter(|down| down.at >= at);
    }

    /// Whether a plan may use it.
    fn is_up(&self, now: Time) -> bool {
        !self.down.is_some_and(|down| down.is_avoided(now))
    }
}

/// The estimates of a leg in the measuring service's table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LegEstimates {
    /// The free rate by trains in bit/s, as the tool reports it, whether it may be more, and its age.
    pub spare: Option<(f64, bool, Duration)>,
    /// The throughput of TCP in bit/s, and its age.
    pub rate: Option<(f64, Duration)>,
    pub rtt: Option<Duration>,
}

/// All reports.
#[derive(Debug, Default)]
pub(super) struct ReportState {
    pub members: Members,
    pub reported: BTreeMap<NodeId, LastReport>,
    /// The member that publishes each name.
    pub holders: BTreeMap<Name, NodeId>,
    pub legs: BTreeMap<LegEnds, LegState>,
    pub rules: Rules,
    /// Whether the oracle was elected so recently that members may claim the names that they publish already.
    pub is_claiming: bool,
    /// Whether a report since the last plan may change the plan.
    pub is_news: bool,
    /// Whether a subscriber waits for a route: there is a new subscription, or a leg or member is gone.
    pub is_urgent: bool,
}

impl ReportState {
    /// Forgets members that left the roster.
    pub fn follow(&mut self, roster: &Roster) {
        if self.members.follow(roster) {
            let Self { members, reported, .. } = self;
            reported.retain(|key, _| members.get(key).is_some());
            self.tidy();
        }
    }

    /// Forgets silent members.
    pub fn expire(&mut self, now: Time) {
        let before = self.reported.len();
        self.reported.retain(|_, reported| now.since(reported.heard) < SILENCE);
        if self.reported.len() < before {
            self.tidy();
        }
    }

    /// Removes the names and legs of members that are gone.
    fn tidy(&mut self) {
        let Self { reported, holders, legs, .. } = self;
        holders.retain(|_, holder| reported.contains_key(holder));
        legs.retain(|(from, to), _| reported.contains_key(from) && reported.contains_key(to));
        (self.is_news, self.is_urgent) = (true, true);
    }

    /// Accepts a report, except entries that belong to other members. Returns what was refused, and why.
    pub fn take(&mut self, who: NodeId, mut report: Report, now: Time) -> Vec<String> {
        self.expire(now);
        if !self.reported.contains_key(&who) && self.reported.len() >= MOST_MEMBERS {
            return vec![format!(
                "the oracle already plans streams of {MOST_MEMBERS} members, which \
                                 is the limit"
            )];
        }
        let mut refused = Vec::new();
        self.take_published(who, &report, now, &mut refused);
        self.take_subscriptions(who, &mut report, &mut refused);
        let is_news = self.is_news_of(who, &report);
        let (legs, lost) = (std::mem::take(&mut report.legs), std::mem::take(&mut report.lost));
        // For `receivers`.
        report.parents.sort_unstable_by(|a, b| a.stream.cmp(&b.stream));
        self.record_working(who, &report, &lost, now);
        self.reported.insert(who, LastReport { heard: now, report });
        self.is_news |= is_news;
        for leg in legs {
            if let Err(why) = self.take_leg(who, &leg, now) {
                refused.push(why);
            }
        }
        for parent in lost {
            match self.members.by_name(&parent) {
                Some(parent) if parent != who => self.set_down((parent, who), now),
                _ => refused.push(format!(
                    "{parent} is not another member, so it cannot be this node's parent"
                )),
            }
        }
        let more = refused.len().saturating_sub(REASONS);
        refused.truncate(REASONS);
        if more > 0 {
            refused.push(format!("and {more} more"));
        }
        refused
    }

    /// A name belongs to its first publisher until that one ends the stream or is silent. While an elected oracle
    /// collects reports, it belongs to the one whose stream ran before.
    fn take_published(
        &mut self,
        who: NodeId,
        report: &Report,
        now: Time,
        refused: &mut Vec<String>,
    ) {
        let publishes = |name: &Name| report.published.iter().any(|own| own.stream == *name);
        self.holders.retain(|name, holder| *holder != who || publishes(name));
        let mut own = self.holders.values().filter(|holder| **holder == who).count();
        for published in &report.published {
            let stream = &published.stream;
            match self.holders.get(stream) {
                Some(holder) if *holder == who => {}
                Some(holder) if self.precedes(&who, published, holder, now) => {
                    self.holders.insert(stream.clone(), who);
                    self.is_news = true;
                }
                Some(holder) => {
                    let by = self.members.name(holder).map_or("another member", Name::as_str);
                    refused.push(format!("`{stream}` is already published at {by}"));
                }
                None if !has_room(own, self.holders.len(), MOST_STREAMS) => {
                    refused.push(format!("`{stream}`: there are too many streams already"));
                }
                None => {
                    own += 1;
                    self.holders.insert(stream.clone(), who);
                }
            }
        }
    }

    /// Whether a member's stream ran before that of the holder of its name, as far as an election allows it: more
    /// members receive it. What publishers say of themselves counts only if nobody receives either stream.
    fn precedes(&self, who: &NodeId, published: &Published, holder: &NodeId, now: Time) -> bool {
        let Some(LastReport { heard, report }) = self.reported.get(holder) else { return true };
        let held = report.published.iter().find(|held| held.stream == published.stream);
        let held = held.map_or(Duration::ZERO, |held| held.age.saturating_add(now.since(*heard)));
        let receivers = |origin| self.receivers(&published.stream, origin);
        self.is_claiming
            && match (receivers(who), receivers(holder)) {
                (0, 0) => published.age > held,
                (own, others) => own > others,
            }
    }

    /// How many other members receive the stream of this name from this publisher's node, by their own reports.
    fn receivers(&self, stream: &Name, origin: &NodeId) -> usize {
        let Some(name) = self.members.name(origin) else { return 0 };
        let receives = |report: &Report| {
            let at = report.parents.binary_search_by(|parent| parent.stream.cmp(stream));
            at.is_ok_and(|at| report.parents[at].origin.as_ref() == Some(name))
        };
        let others = self.reported.iter().filter(|(key, _)| *key != origin);
        others.filter(|(_, reported)| receives(&reported.report)).count()
    }

    fn take_subscriptions(&self, who: NodeId, report: &mut Report, refused: &mut Vec<String>) {
        let others = self.reported.iter().filter(|(key, _)| **key != who);
        let others: usize = others.map(|(_, reported)| reported.report.subscriptions.len()).sum();
        let wanted = report.subscriptions.len();
        let room = (0..wanted).take_while(|own| has_room(*own, others + own, MOST_SUBSCRIPTIONS));
        let room = room.count();
        if wanted > room {
            refused.push(format!(
                "{} subscriptions are not accepted: there are too many already",
                wanted - room
            ));
            report.subscriptions.truncate(room);
        }
    }

    /// Whether a report may change the plan, not counting its legs.
    fn is_news_of(&self, who: NodeId, report: &Report) -> bool {
        let Some(LastReport { report: old, .. }) = self.reported.get(&who) else { return true };
        let is_other =
            |old: &Subscription, new: &Subscription| old.id != new.id || !old.is_same_request(new);
        old.relays != report.relays
            || old.transcoders != report.transcoders
            || old.egress_bps != report.egress_bps
            || old.published.len() != report.published.len()
            || old.published.iter().zip(&report.published).any(|(old, new)| !is_like(old, new))
            || old.subscriptions.len() != report.subscriptions.len()
            || old.subscriptions.iter().zip(&report.subscriptions).any(|(a, b)| is_other(a, b))
    }

    /// Ends the failures of the legs over which a member receives streams now.
    fn record_working(&mut self, who: NodeId, report: &Report, lost: &[Name], now: Time) {
        let parents = report.parents.iter().map(|parent| &parent.node);
        for parent in parents.filter(|parent| !lost.contains(parent)) {
            let from = self.members.by_name(parent);
            if let Some(leg) = from.and_then(|from| self.legs.get_mut(&(from, who)))
                && leg.is_up(now)
            {
                leg.work(now);
            }
        }
    }

    /// Accepts a report of a leg from its sender.
    fn take_leg(&mut self, from: NodeId, report: &LegReport, now: Time) -> Result<(), String> {
        let to = self.members.by_name(&report.to);
        let to = to.filter(|to| *to != from);
        let to = to.ok_or_else(|| format!("no other member is named {}", report.to))?;
        if !self.legs.contains_key(&(from, to)) && !self.has_room_for_leg(from) {
            return Err(format!("{}: too many legs are known already", report.to));
        }
        if report.is_down {
            self.set_down((from, to), now);
        }
        let leg = self.legs.entry((from, to)).or_default();
        let before = leg.view.known(now, &self.rules).map(|known| known.bps);
        let LegReport { sent_bps: bps, is_limited, age, .. } = *report;
        // While it is avoided it carries nothing, which says nothing of its rate.
        if leg.is_up(now) {
            leg.view.report(Sent { bps, is_limited, at: now - age }, &self.rules);
        }
        leg.delay = report.delay.or(leg.delay);
        if let Some(Measured { free_bps: free, at_least, took, age }) = report.measured {
            let ended = now - age;
            leg.view.add_trains(Trains { free, at_least, began: ended - took, ended });
            leg.asked = None;
            leg.work(ended - took);
        }
        // The estimate changed, or is recent enough to raise a subscriber.
        self.is_news |= report.measured.is_some()
            || leg.view.known(now, &self.rules).map(|known| known.bps) != before;
        Ok(())
    }

    fn set_down(&mut self, ends: LegEnds, now: Time) {
        // Its receiver may report it too, and its state counts as the sender's.
        if self.legs.contains_key(&ends) || self.has_room_for_leg(ends.0) {
            let is_news = self.legs.entry(ends).or_default().fail(now);
            self.is_news |= is_news;
            self.is_urgent |= is_news;
        }
    }

    /// Adds the table's estimates of a leg. The table does not say when a measurement began, so it is assumed to have
    /// taken ten seconds, the paper's minimum.
    pub fn estimate(&mut self, ends: LegEnds, found: &LegEstimates, now: Time) {
        let is_known = self.legs.contains_key(&ends);
        if *found == LegEstimates::default() || !(is_known || self.has_room_for_leg(ends.0)) {
            return;
        }
        let leg = self.legs.entry(ends).or_default();
        if leg.delay.is_none() {
            leg.delay = found.rtt.map(|rtt| rtt / 2);
        }
        if let Some((bps, at_least, age)) = found.spare {
            let ended = now - age;
            let began = ended - TOOK;
            leg.view.add_trains(Trains { free: bps.max(0.0) as u64, at_least, began, ended });
        }
    }

    /// Whether a plan may use the leg.
    pub fn is_up(&self, ends: &LegEnds, now: Time) -> bool {
        self.legs.get(ends).is_none_or(|leg| leg.is_up(now))
    }

    /// The state of a leg; `None` if it is new and there are too many.
    pub fn leg_entry(&mut self, ends: LegEnds) -> Option<&mut LegState> {
        let has_room = self.legs.contains_key(&ends) || self.has_room_for_leg(ends.0);
        has_room.then(|| self.legs.entry(ends).or_default())
    }

    fn has_room_for_leg(&self, from: NodeId) -> bool {
        let end = |byte| (from, NodeId::from_bytes([byte; 32]));
        let own = self.legs.range(end(0)..=end(u8::MAX)).count();
        has_room(own, self.legs.len(), MOST_LEGS)
    }

    /// Names that the member publishes although other members hold them.
    pub fn held(&self, who: &NodeId) -> Vec<NameHolder> {
        let published =
            self.reported.get(who).into_iter().flat_map(|reported| &reported.report.published);
        let holder = |published: &Published| {
            let holder = self.holders.get(&published.stream).filter(|holder| *holder != who)?;
            let node = self.members.name(holder)?.clone();
            Some(NameHolder { stream: published.stream.clone(), node })
        };
        published.filter_map(holder).collect()
    }

    /// The report of a stream by the member that holds its name.
    pub fn published(&self, stream: &Name) -> Option<(NodeId, &Published)> {
        let holder = self.holders.get(stream)?;
        let all = &self.reported.get(holder)?.report.published;
        all.iter().find(|published| published.stream == *stream).map(|found| (*holder, found))
    }
}

/// Whether a stream is unchanged; rates may vary by a tenth.
fn is_like(old: &Published, new: &Published) -> bool {
    let rates = |published: &Published| -> Vec<u64> {
        published.tracks.iter().flat_map(|track| track.rates).collect()
    };
    let is_near = |(old, new): (&u64, &u64)| old.abs_diff(*new) <= old / 10;
    old.stream == new.stream
        && old.allow == new.allow
        && old.tracks.len() == new.tracks.len()
        && rates(old).iter().zip(&rates(new)).all(is_near)
}

/// The assumed duration of measurements of unknown duration.
const TOOK: Duration = Duration::from_secs(10);
