//! Who is there, and who does not answer.

use super::nodes::Slot;
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::Time;

/// Fewer complaints than this make nobody down: one may lie, or have a broken way itself.
const COMPLAINTS: usize = 2;

/// So long a complaint counts, and so long one that was refuted does not count again.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A relay that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Downtime {
    pub since: Time,
    pub why: String,
}

/// What others say of whether they reach one member.
#[derive(Debug, Default)]
struct Word {
    /// Who could not, and when: taken back by whoever does, else for a day.
    complaints: BTreeMap<Slot, Time>,
    /// Whose complaints were refuted by another's measurement, and when. They do not count until
    /// their complainer has reached it itself, or for a day: so that a few who lie do not have
    /// an honest relay down again and again.
    refuted: BTreeMap<Slot, Time>,
    /// Who was last asked to try while it is down.
    asked: BTreeMap<Slot, Time>,
}

impl Word {
    fn is_young(at: Time, now: Time) -> bool {
        now.since(at) < DAY
    }

    fn complaints(&self, now: Time) -> usize {
        let young = self.complaints.iter().filter(|(_, at)| Self::is_young(**at, now));
        let refuted = |by: &Slot| self.refuted.get(by).is_some_and(|at| Self::is_young(*at, now));
        young.filter(|(by, _)| !refuted(by)).count()
    }

    /// When this one last had a say; none: not within the day.
    fn last(&self, by: Slot, now: Time) -> Option<Time> {
        let of = |all: &BTreeMap<Slot, Time>| all.get(&by).copied();
        let last = of(&self.complaints).max(of(&self.refuted)).max(of(&self.asked));
        last.filter(|at| Self::is_young(*at, now))
    }
}

/// Who asks and reports, and who was not reached.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// When each was last heard.
    seen: Vec<Option<Time>>,
    /// Of those whom somebody could not reach.
    words: BTreeMap<Slot, Word>,
    down: BTreeMap<Slot, Downtime>,
}

impl Presence {
    pub fn resize(&mut self, slots: u32, gone: &[Slot]) {
        self.seen.resize(slots as usize, None);
        for slot in gone {
            self.seen[*slot as usize] = None;
            self.words.remove(slot);
            self.down.remove(slot);
            for word in self.words.values_mut() {
                let Word { complaints, refuted, asked } = word;
                [complaints, refuted, asked].into_iter().for_each(|by| _ = by.remove(slot));
            }
        }
    }

    /// It asked, or reported.
    pub fn heard(&mut self, slot: Slot, now: Time) {
        self.seen.iter_mut().skip(slot as usize).take(1).for_each(|seen| *seen = Some(now));
    }

    fn last(&self, slot: Slot) -> Option<Time> {
        self.seen.get(slot as usize).copied().flatten()
    }

    /// Whether orders can be given to it.
    pub fn is_there(&self, slot: Slot, now: Time, silent: Duration) -> bool {
        self.last(slot).is_some_and(|last| now.since(last) < silent)
    }

    /// `by` could not reach a member.
    pub fn unreached(&mut self, slot: Slot, by: Slot, now: Time) {
        self.words.entry(slot).or_default().complaints.insert(by, now);
    }

    /// `by` says that it reached a member after all.
    pub fn reached(&mut self, slot: Slot, by: Slot) {
        self.words.entry(slot).and_modify(|word| _ = word.complaints.remove(&by));
    }

    /// Both ends told of a measurement: `by` reached it. Others' complaints are refuted.
    pub fn met(&mut self, slot: Slot, by: Slot, now: Time) {
        let Some(word) = self.words.get_mut(&slot) else { return };
        word.complaints.remove(&by);
        word.refuted.remove(&by);
        word.refuted.retain(|_, at| Word::is_young(*at, now));
        word.refuted.extend(std::mem::take(&mut word.complaints).into_keys().map(|by| (by, now)));
        word.asked.clear();
        if word.refuted.is_empty() {
            self.words.remove(&slot);
        }
    }

    fn complaints(&self, slot: Slot, now: Time) -> usize {
        self.words.get(&slot).map_or(0, |word| word.complaints(now))
    }

    /// Whether so many cannot reach it that it counts as down: two at least, and more than
    /// those who did.
    pub fn is_unreached(&self, slot: Slot, reached_by: usize, now: Time) -> bool {
        let complaints = self.complaints(slot, now);
        complaints >= COMPLAINTS && complaints > reached_by
    }

    /// Those who are there, are down since they were not reached, and have been left alone for
    /// `rest`: it is time to try whether they answer again.
    pub fn untried(&self, now: Time, silent: Duration, rest: Duration) -> Vec<Slot> {
        let is_due = |(slot, down): &(&Slot, &Downtime)| {
            let word = self.words.get(*slot)?;
            let last = word.asked.values().copied().max().unwrap_or(down.since);
            (self.is_there(**slot, now, silent) && now.since(last) >= rest).then_some(())
        };
        self.down.iter().filter(|down| is_due(down).is_some()).map(|(slot, _)| *slot).collect()
    }

    /// Of these, the one that is to try: who has not complained or been asked, or else whose
    /// word is the oldest. So each has its turn, and whoever says nothing holds nobody up.
    pub fn trier(&mut self, slot: Slot, of: impl Iterator<Item = Slot>, now: Time) -> Option<Slot> {
        let word = self.words.get_mut(&slot)?;
        let by = of.min_by_key(|by| (word.last(*by, now), *by))?;
        word.asked.insert(by, now);
        Some(by)
    }

    /// Why a relay is down now; none: it is not. `start`: since when the oracle could have heard.
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
                "{complaints} members cannot reach it, {reached_by} could; look at its addresses \
                 in the roster and at its firewall; it is tried again every few minutes"
            );
            return Some(Downtime { since: now, why });
        }
        None
    }

    /// Keeps a judgement: whether it is another than before.
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

    pub fn is_down(&self, slot: Slot) -> bool {
        self.down.contains_key(&slot)
    }

    /// Who is down.
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
    fn silence_makes_a_relay_down_but_not_before_it_could_have_spoken() {
        let mut presence = Presence::default();
        presence.resize(2, &[]);
        let judge = |p: &Presence, now| p.judge(0, 0, (at(now), at(100)), SILENT);
        assert_eq!(judge(&presence, 150), None, "the oracle has only just started");
        assert_eq!(judge(&presence, 190).unwrap().since, at(100));
        presence.heard(0, at(1000));
        assert_eq!(judge(&presence, 1080), None);
        assert_eq!(judge(&presence, 1090).unwrap().since, at(1000));
    }

    #[test]
    fn one_complaint_makes_nobody_down_nor_two_against_a_majority() {
        let mut presence = Presence::default();
        presence.resize(9, &[]);
        presence.heard(0, at(10));
        let judge = |p: &Presence, reached_by| p.judge(0, reached_by, (at(20), at(0)), SILENT);
        presence.unreached(0, 7, at(15));
        assert_eq!(judge(&presence, 0), None);
        presence.unreached(0, 8, at(16));
        assert!(judge(&presence, 0).unwrap().why.starts_with("2 members cannot reach it"));
        assert_eq!(judge(&presence, 2), None);
        let tomorrow = 86_400 + 15;
        assert!(presence.is_unreached(0, 0, at(tomorrow - 1)));
        assert!(!presence.is_unreached(0, 0, at(tomorrow)), "a complaint counts for a day");
        presence.reached(0, 8);
        assert_eq!(judge(&presence, 0), None, "taken back");
    }

    #[test]
    fn who_is_down_is_tried_by_each_in_turn_and_two_liars_are_refuted_for_the_day() {
        const REST: Duration = Duration::from_secs(600);
        let mut presence = Presence::default();
        presence.resize(5, &[]);
        let complain = |presence: &mut Presence, s| {
            presence.heard(0, at(s));
            [1, 2].into_iter().for_each(|liar| presence.unreached(0, liar, at(s)));
            let judged = presence.judge(0, 0, (at(s), at(0)), SILENT);
            presence.set(0, judged);
            presence.is_down(0)
        };
        assert!(complain(&mut presence, 10));
        assert_eq!(presence.untried(at(20), SILENT, REST), [0; 0]);
        presence.heard(0, at(610));
        assert_eq!(presence.untried(at(610), SILENT, REST), [0]);
        let trier = |presence: &mut Presence, s| presence.trier(0, 1..5, at(s)).unwrap();
        assert_eq!(trier(&mut presence, 610), 3, "neither of those who complain");
        assert_eq!(presence.untried(at(620), SILENT, REST), [0; 0], "one order, not many");
        let later = [1210, 1810, 2410, 3010].map(|s| trier(&mut presence, s));
        assert_eq!(later, [4, 1, 2, 3], "whoever is silent has its turn over");
        presence.met(0, 3, at(3020));
        assert!(!complain(&mut presence, 3030), "they say so again");
        presence.unreached(0, 4, at(3040));
        assert!(!presence.is_unreached(0, 0, at(3040)));
        assert!(complain(&mut presence, 3020 + 86_400));
    }

    #[test]
    fn who_was_refuted_counts_again_once_it_has_reached_it() {
        let mut presence = Presence::default();
        presence.resize(5, &[]);
        [1, 2].into_iter().for_each(|by| presence.unreached(0, by, at(10)));
        presence.met(0, 3, at(20));
        [1, 2].into_iter().for_each(|by| presence.met(0, by, at(30)));
        [1, 2].into_iter().for_each(|by| presence.unreached(0, by, at(40)));
        assert!(presence.is_unreached(0, 0, at(40)));
    }
}
