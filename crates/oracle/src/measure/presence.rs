//! Which members are present, and which relays do not respond.

use super::nodes::Slot;
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::Time;

/// The least number of complaints that makes a relay down: one complainer may lie or have a broken path itself.
const COMPLAINTS: usize = 2;

/// How long a complaint counts, and how long a refuted complainer is ignored.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The downtime of a relay that does not respond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Downtime {
    pub since: Time,
    pub why: String,
}

/// What other members report about reaching one member.
#[derive(Debug, Default)]
struct Reachability {
    /// Members that could not reach it, and when. A complaint lasts until its author reaches the member, or for a day.
    complaints: BTreeMap<Slot, Time>,
    /// Members whose complaints were refuted by another's measurement, and when. Their complaints do not count until
    /// they have reached the member themselves, or for a day. So a few liars cannot make an honest relay down again and
    /// again.
    refuted: BTreeMap<Slot, Time>,
    /// Members that were asked to probe it while it was down, and when.
    asked: BTreeMap<Slot, Time>,
}

impl Reachability {
    fn is_young(at: Time, now: Time) -> bool {
        now.since(at) < DAY
    }

    fn complaints(&self, now: Time) -> usize {
        let young = self.complaints.iter().filter(|(_, at)| Self::is_young(**at, now));
        let refuted = |by: &Slot| self.refuted.get(by).is_some_and(|at| Self::is_young(*at, now));
        young.filter(|(by, _)| !refuted(by)).count()
    }

    /// When this member last complained, was refuted or was asked; `None`: not within a day.
    fn last(&self, by: Slot, now: Time) -> Option<Time> {
        let of = |all: &BTreeMap<Slot, Time>| all.get(&by).copied();
        let last = of(&self.complaints).max(of(&self.refuted)).max(of(&self.asked));
        last.filter(|at| Self::is_young(*at, now))
    }
}

/// Which members were heard, and which could not be reached.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// When each member was last heard, by slot.
    seen: Vec<Option<Time>>,
    /// Reports about the members that somebody could not reach.
    reachability: BTreeMap<Slot, Reachability>,
    down: BTreeMap<Slot, Downtime>,
}

impl Presence {
    /// Follows a new roster with this number of slots: forgets all about the members that are gone.
    pub fn resize(&mut self, slots: u32, gone: &[Slot]) {
        self.seen.resize(slots as usize, None);
        for slot in gone {
            self.seen[*slot as usize] = None;
            self.reachability.remove(slot);
            self.down.remove(slot);
            for report in self.reachability.values_mut() {
                let Reachability { complaints, refuted, asked } = report;
                [complaints, refuted, asked].into_iter().for_each(|by| _ = by.remove(slot));
            }
        }
    }

    /// Notes that a member polled or reported.
    pub fn record_contact(&mut self, slot: Slot, now: Time) {
        self.seen.iter_mut().skip(slot as usize).take(1).for_each(|seen| *seen = Some(now));
    }

    fn last(&self, slot: Slot) -> Option<Time> {
        self.seen.get(slot as usize).copied().flatten()
    }

    /// Whether a member was heard recently, so that orders can be given to it.
    pub fn is_there(&self, slot: Slot, now: Time, silent: Duration) -> bool {
        self.last(slot).is_some_and(|last| now.since(last) < silent)
    }

    /// Notes that `by` could not reach a member.
    pub fn record_unreached(&mut self, slot: Slot, by: Slot, now: Time) {
        self.reachability.entry(slot).or_default().complaints.insert(by, now);
    }

    /// Notes that `by` claims to have reached a member, which withdraws its complaint.
    pub fn record_reached(&mut self, slot: Slot, by: Slot) {
        self.reachability.entry(slot).and_modify(|report| _ = report.complaints.remove(&by));
    }

    /// Notes that both ends reported a measurement, so `by` reached the member. This refutes the complaints of others.
    pub fn confirm_reached(&mut self, slot: Slot, by: Slot, now: Time) {
        let Some(report) = self.reachability.get_mut(&slot) else { return };
        report.complaints.remove(&by);
        report.refuted.remove(&by);
        report.refuted.retain(|_, at| Reachability::is_young(*at, now));
        report
            .refuted
            .extend(std::mem::take(&mut report.complaints).into_keys().map(|by| (by, now)));
        report.asked.clear();
        if report.refuted.is_empty() {
            self.reachability.remove(&slot);
        }
    }

    fn complaints(&self, slot: Slot, now: Time) -> usize {
        self.reachability.get(&slot).map_or(0, |report| report.complaints(now))
    }

    /// Whether enough members complain that it counts as down: at least two, and more than those that reached it.
    pub fn is_unreached(&self, slot: Slot, reached_by: usize, now: Time) -> bool {
        let complaints = self.complaints(slot, now);
        complaints >= COMPLAINTS && complaints > reached_by
    }

    /// The members that are present, are down because others could not reach them, and were left alone for `rest`, so
    /// that a probe is due.
    pub fn probes_due(&self, now: Time, silent: Duration, rest: Duration) -> Vec<Slot> {
        let is_due = |(slot, down): &(&Slot, &Downtime)| {
            let report = self.reachability.get(*slot)?;
            let last = report.asked.values().copied().max().unwrap_or(down.since);
            (self.is_there(**slot, now, silent) && now.since(last) >= rest).then_some(())
        };
        self.down.iter().filter(|down| is_due(down).is_some()).map(|(slot, _)| *slot).collect()
    }

    /// Chooses the member among `of` that probes a relay: one that has neither complained nor been asked, or else the
    /// one with the oldest report. So each has its turn, and a silent one delays nobody.
    pub fn prober(
        &mut self,
        slot: Slot,
        of: impl Iterator<Item = Slot>,
        now: Time,
    ) -> Option<Slot> {
        let report = self.reachability.get_mut(&slot)?;
        let by = of.min_by_key(|by| (report.last(*by, now), *by))?;
        report.asked.insert(by, now);
        Some(by)
    }

    /// The downtime of a relay; `None` if it is not down. `start`: since when the oracle could have heard it.
    pub fn judge(
        &self,
        slot: Slot,
        reached_by: usize,
        (now, start): (Time, Time),
        silent: Duration,
    ) -> Option<Downtime> {
        if !self.is_there(slot, now, silent) {
            let since = self.last(slot).unwrap_or(start);
            let why = "it neither asks for orders nor reports: `thalweg node` does not run there, \
                       does not measure, or does not reach this oracle";
            return (now.since(since) >= silent).then(|| Downtime { since, why: why.into() });
        }
        if self.is_unreached(slot, reached_by, now) {
            let complaints = self.complaints(slot, now);
            let why = format!(
                "{complaints} members cannot reach it, {reached_by} could; check its addresses in \
                 the roster and its firewall; it is tried again every few minutes"
            );
            return Some(Downtime { since: now, why });
        }
        None
    }

    /// Stores a judgement. Returns whether it differs from the one before.
    pub fn set(&mut self, slot: Slot, judged: Option<Downtime>) -> bool {
        match (self.down.contains_key(&slot), judged) {
            (false, Some(down)) => {
                self.down.insert(slot, down);
                true
            }
            (true, None) => {
                self.down.remove(&slot);
                true
            }
            _ => false,
        }
    }

    /// Whether this is a relay that does not respond.
    pub fn is_down(&self, slot: Slot) -> bool {
        self.down.contains_key(&slot)
    }

    /// The relays that are down.
    pub fn down(&self) -> impl Iterator<Item = (Slot, &Downtime)> {
        self.down.iter().map(|(slot, down)| (*slot, down))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT: Duration = Duration::from_secs(90);

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn a_silent_relay_is_down_only_after_it_could_have_reported() {
        let mut presence = Presence::default();
        presence.resize(2, &[]);
        let judge = |p: &Presence, now| p.judge(0, 0, (at(now), at(100)), SILENT);
        assert_eq!(judge(&presence, 150), None, "the oracle has only just started");
        assert_eq!(judge(&presence, 190).unwrap().since, at(100));
        presence.record_contact(0, at(1000));
        assert_eq!(judge(&presence, 1080), None);
        assert_eq!(judge(&presence, 1090).unwrap().since, at(1000));
    }

    #[test]
    fn a_relay_is_down_by_two_complaints_unless_as_many_reach_it() {
        let mut presence = Presence::default();
        presence.resize(9, &[]);
        presence.record_contact(0, at(10));
        let judge = |p: &Presence, reached_by| p.judge(0, reached_by, (at(20), at(0)), SILENT);
        presence.record_unreached(0, 7, at(15));
        assert_eq!(judge(&presence, 0), None);
        presence.record_unreached(0, 8, at(16));
        assert!(judge(&presence, 0).unwrap().why.starts_with("2 members cannot reach it"));
        assert_eq!(judge(&presence, 2), None);
        let tomorrow = 86_400 + 15;
        assert!(presence.is_unreached(0, 0, at(tomorrow - 1)));
        assert!(!presence.is_unreached(0, 0, at(tomorrow)), "a complaint counts for a day");
        presence.record_reached(0, 8);
        assert_eq!(judge(&presence, 0), None, "taken back");
    }

    #[test]
    fn down_relays_are_probed_in_turn_and_refuted_liars_are_ignored_for_a_day() {
        const REST: Duration = Duration::from_secs(600);
        let mut presence = Presence::default();
        presence.resize(5, &[]);
        let complain = |presence: &mut Presence, s| {
            presence.record_contact(0, at(s));
            [1, 2].into_iter().for_each(|liar| presence.record_unreached(0, liar, at(s)));
            let judged = presence.judge(0, 0, (at(s), at(0)), SILENT);
            presence.set(0, judged);
            presence.is_down(0)
        };
        assert!(complain(&mut presence, 10));
        assert_eq!(presence.probes_due(at(20), SILENT, REST), [0; 0]);
        presence.record_contact(0, at(610));
        assert_eq!(presence.probes_due(at(610), SILENT, REST), [0]);
        let prober = |presence: &mut Presence, s| presence.prober(0, 1..5, at(s)).unwrap();
        assert_eq!(prober(&mut presence, 610), 3, "neither of those who complain");
        assert_eq!(presence.probes_due(at(620), SILENT, REST), [0; 0], "one order, not many");
        let later = [1210, 1810, 2410, 3010].map(|s| prober(&mut presence, s));
        assert_eq!(later, [4, 1, 2, 3], "whoever is silent has its turn over");
        presence.confirm_reached(0, 3, at(3020));
        assert!(!complain(&mut presence, 3030), "they say so again");
        presence.record_unreached(0, 4, at(3040));
        assert!(!presence.is_unreached(0, 0, at(3040)));
        assert!(complain(&mut presence, 3020 + 86_400));
    }

    #[test]
    fn a_refuted_complainer_counts_again_after_reaching_the_relay() {
        let mut presence = Presence::default();
        presence.resize(5, &[]);
        [1, 2].into_iter().for_each(|by| presence.record_unreached(0, by, at(10)));
        presence.confirm_reached(0, 3, at(20));
        [1, 2].into_iter().for_each(|by| presence.confirm_reached(0, by, at(30)));
        [1, 2].into_iter().for_each(|by| presence.record_unreached(0, by, at(40)));
        assert!(presence.is_unreached(0, 0, at(40)));
    }
}
