//! What members have said: in memory, each for as long as it goes on saying it.

use super::members::Members;
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::streams::{LegView, Rules, Sent, Trains};
use thalweg_units::{NodeId, Time};
use thalweg_wire::{
    mesh::{Name, Roster},
    stream::plan::{Holder, LegReport, Measured, Published, Report, SILENCE, Subscription},
};

/// Members whose streams are planned: the scheduler's tables are of pairs of them.
pub(super) const MOST_MEMBERS: usize = 1000;

/// Streams at a time.
pub(super) const MOST_STREAMS: usize = 4096;

/// Subscriptions at a time.
pub(super) const MOST_SUBSCRIPTIONS: usize = 32_768;

/// Legs of which something is known, about 1 kB each.
pub(super) const MOST_LEGS: usize = 65_536;

/// A leg that one of its ends has called broken is left out for so long.
pub(super) const DOWN: Duration = Duration::from_secs(10);

/// Refusals that are told; the others are counted.
const REASONS: usize = 16;

/// From, to.
pub(super) type Ends = (NodeId, NodeId);

/// One member's last report.
#[derive(Debug)]
pub(super) struct Said {
    pub heard: Time,
    pub report: Report,
}

/// What is known of one leg.
#[derive(Debug, Default)]
pub(super) struct Leg {
    pub view: LegView,
    pub delay: Option<Duration>,
    /// When an end has last called it broken.
    pub down: Option<Time>,
    /// What the plan in force sends over it, bit/s.
    pub carries: u64,
    /// Since when its sender is asked to measure it; `None`: it is measured, or was never asked for.
    pub asked: Option<Time>,
}

/// What the measuring service's table says of a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimated {
    /// What trains found to be free: bit/s at the range's lower end, whether it may be more, age.
    pub spare: Option<(f64, bool, Duration)>,
    /// What TCP moved: bit/s, age.
    pub rate: Option<(f64, Duration)>,
    /// The round trip.
    pub rtt: Option<Duration>,
}

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct State {
    pub members: Members,
    pub said: BTreeMap<NodeId, Said>,
    /// Who publishes which name.
    pub holders: BTreeMap<Name, NodeId>,
    pub legs: BTreeMap<Ends, Leg>,
    pub rules: Rules,
    /// Whether something has been said since the last plan that may change it.
    pub is_news: bool,
}

impl State {
    /// Forgets who is a member no more.
    pub fn follow(&mut self, roster: &Roster) {
        if self.members.follow(roster) {
            let Self { members, said, .. } = self;
            said.retain(|key, _| members.get(key).is_some());
            self.tidy();
        }
    }

    /// Forgets who has been silent.
    pub fn expire(&mut self, now: Time) {
        let before = self.said.len();
        self.said.retain(|_, said| now.since(said.heard) < SILENCE);
        if self.said.len() < before {
            self.tidy();
        }
    }

    /// What goes with those who are gone: their names and legs.
    fn tidy(&mut self) {
        let Self { said, holders, legs, .. } = self;
        holders.retain(|_, holder| said.contains_key(holder));
        legs.retain(|(from, to), _| said.contains_key(from) && said.contains_key(to));
        self.is_news = true;
    }

    /// Takes what a member says, but for what is another's; why not that.
    pub fn take(&mut self, who: NodeId, mut report: Report, now: Time) -> Vec<String> {
        self.expire(now);
        if !self.said.contains_key(&who) && self.said.len() >= MOST_MEMBERS {
            return vec![format!("the oracle plans streams of {MOST_MEMBERS} members already")];
        }
        let mut refused = Vec::new();
        self.take_published(who, &mut report, &mut refused);
        self.take_subscriptions(who, &mut report, &mut refused);
        let is_news = self.is_news_of(who, &report);
        let (legs, lost) = (std::mem::take(&mut report.legs), std::mem::take(&mut report.lost));
        self.said.insert(who, Said { heard: now, report });
        self.is_news |= is_news;
        for leg in legs {
            if let Err(why) = self.take_leg(who, &leg, now) {
                refused.push(why);
            }
        }
        for parent in lost {
            match self.members.by_name(&parent) {
                Some(parent) if parent != who => self.call_down((parent, who), now),
                _ => refused.push(format!("{parent} is nobody's parent here: no such member")),
            }
        }
        let more = refused.len().saturating_sub(REASONS);
        refused.truncate(REASONS);
        if more > 0 {
            refused.push(format!("and {more} more"));
        }
        refused
    }

    /// The first who publishes a name holds it until it ends or is silent.
    fn take_published(&mut self, who: NodeId, report: &mut Report, refused: &mut Vec<String>) {
        let publishes = |name: &Name| report.published.iter().any(|own| own.stream == *name);
        self.holders.retain(|name, holder| *holder != who || publishes(name));
        for Published { stream, .. } in &report.published {
            match self.holders.get(stream) {
                Some(holder) if *holder == who => {}
                Some(holder) => {
                    let by = self.members.name(holder).map_or("another member", Name::as_str);
                    refused.push(format!("`{stream}` is published at {by} already"));
                }
                None if self.holders.len() >= MOST_STREAMS => {
                    refused.push(format!("`{stream}`: there are {MOST_STREAMS} streams already"));
                }
                None => _ = self.holders.insert(stream.clone(), who),
            }
        }
    }

    fn take_subscriptions(&self, who: NodeId, report: &mut Report, refused: &mut Vec<String>) {
        let others = self.said.iter().filter(|(key, _)| **key != who);
        let others: usize = others.map(|(_, said)| said.report.subscriptions.len()).sum();
        let room = MOST_SUBSCRIPTIONS.saturating_sub(others);
        if report.subscriptions.len() > room {
            refused.push(format!("there are {MOST_SUBSCRIPTIONS} subscriptions already"));
            report.subscriptions.truncate(room);
        }
    }

    /// Whether a report may change the plan, beside what it says of legs.
    fn is_news_of(&self, who: NodeId, report: &Report) -> bool {
        let Some(Said { report: old, .. }) = self.said.get(&who) else { return true };
        let is_other =
            |old: &Subscription, new: &Subscription| old.id != new.id || !old.is_same_wish(new);
        old.relays != report.relays
            || old.transcoders != report.transcoders
            || old.egress_bps != report.egress_bps
            || old.published.len() != report.published.len()
            || old.published.iter().zip(&report.published).any(|(old, new)| !is_like(old, new))
            || old.subscriptions.len() != report.subscriptions.len()
            || old.subscriptions.iter().zip(&report.subscriptions).any(|(a, b)| is_other(a, b))
    }

    /// A leg is its sender's to tell of.
    fn take_leg(&mut self, from: NodeId, report: &LegReport, now: Time) -> Result<(), String> {
        let to = self.members.by_name(&report.to);
        let to = to.filter(|to| *to != from);
        let to = to.ok_or_else(|| format!("no other member is called {}", report.to))?;
        if !self.legs.contains_key(&(from, to)) && self.legs.len() >= MOST_LEGS {
            return Err(format!("{}: {MOST_LEGS} legs are known already", report.to));
        }
        if report.is_down {
            self.call_down((from, to), now);
        }
        let leg = self.legs.entry((from, to)).or_default();
        let before = leg.view.known(now, &self.rules).map(|known| known.bps);
        let LegReport { sent_bps: bps, is_limited, age, .. } = *report;
        leg.view.report(Sent { bps, is_limited, at: now - age }, &self.rules);
        leg.delay = report.delay.or(leg.delay);
        if let Some(Measured { free_bps: free, at_least, took, age }) = report.measured {
            let ended = now - age;
            leg.view.add_trains(Trains { free, at_least, began: ended - took, ended });
            leg.asked = None;
        }
        // What is known has changed, or is younger and may lift somebody.
        self.is_news |= report.measured.is_some()
            || leg.view.known(now, &self.rules).map(|known| known.bps) != before;
        Ok(())
    }

    fn call_down(&mut self, ends: Ends, now: Time) {
        if self.legs.len() < MOST_LEGS || self.legs.contains_key(&ends) {
            let leg = self.legs.entry(ends).or_default();
            self.is_news |= leg.down.is_none_or(|at| now.since(at) >= DOWN);
            leg.down = Some(now);
        }
    }

    /// Takes what the table says of a leg. Trains do not say when they began: the paper's take ten seconds and more.
    pub fn estimate(&mut self, ends: Ends, found: &Estimated, now: Time) {
        let is_known = self.legs.contains_key(&ends);
        if *found == Estimated::default() || (!is_known && self.legs.len() >= MOST_LEGS) {
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

    /// Whether a leg can be planned with.
    pub fn is_up(&self, ends: &Ends, now: Time) -> bool {
        let down = self.legs.get(ends).and_then(|leg| leg.down);
        down.is_none_or(|at| now.since(at) >= DOWN)
    }

    /// What is known of a leg; `None`: it is a new one, and there are too many.
    pub fn leg_entry(&mut self, ends: Ends) -> Option<&mut Leg> {
        let is_full = self.legs.len() >= MOST_LEGS && !self.legs.contains_key(&ends);
        (!is_full).then(|| self.legs.entry(ends).or_default())
    }

    /// Names that the member publishes although others hold them.
    pub fn held(&self, who: &NodeId) -> Vec<Holder> {
        let published = self.said.get(who).into_iter().flat_map(|said| &said.report.published);
        let holder = |published: &Published| {
            let holder = self.holders.get(&published.stream).filter(|holder| *holder != who)?;
            let node = self.members.name(holder)?.clone();
            Some(Holder { stream: published.stream.clone(), node })
        };
        published.filter_map(holder).collect()
    }

    /// What the holder of a stream says of it.
    pub fn published(&self, stream: &Name) -> Option<(NodeId, &Published)> {
        let holder = self.holders.get(stream)?;
        let all = &self.said.get(holder)?.report.published;
        all.iter().find(|published| published.stream == *stream).map(|found| (*holder, found))
    }
}

/// Whether a stream is as before, but for rates that vary by less than a tenth.
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

/// How long trains took that do not say it.
const TOOK: Duration = Duration::from_secs(10);
