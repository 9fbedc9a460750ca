//! Who is there, and who does not answer.

use super::nodes::Slot;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_units::Time;

/// Fewer complaints than this make nobody down: one may lie, or have a broken way itself.
const COMPLAINTS: usize = 2;

/// A relay that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Downtime {
    pub since: Time,
    pub why: String,
}

/// Who asks and reports, and who was not reached.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// When each was last heard.
    seen: Vec<Option<Time>>,
    /// Who could not reach whom: taken back by whoever does.
    unreached: BTreeMap<Slot, BTreeSet<Slot>>,
    down: BTreeMap<Slot, Downtime>,
}

impl Presence {
    pub fn resize(&mut self, slots: u32, gone: &[Slot]) {
        self.seen.resize(slots as usize, None);
        for slot in gone {
            self.seen[*slot as usize] = None;
            self.unreached.remove(slot);
            self.down.remove(slot);
            self.unreached.values_mut().for_each(|by| _ = by.remove(slot));
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

    /// `by` could, or could not, reach a member.
    pub fn reached(&mut self, slot: Slot, by: Slot, could: bool) {
        let complaints = self.unreached.entry(slot).or_default();
        match could {
            true => _ = complaints.remove(&by),
            false => _ = complaints.insert(by),
        }
    }

    /// Whether so many cannot reach it that it counts as down: two at least, and more than
    /// those who did.
    pub fn is_unreached(&self, slot: Slot, reached_by: usize) -> bool {
        let complaints = self.unreached.get(&slot).map_or(0, BTreeSet::len);
        complaints >= COMPLAINTS && complaints > reached_by
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
        if self.is_unreached(slot, reached_by) {
            let complaints = self.unreached.get(&slot).map_or(0, BTreeSet::len);
            let why = format!(
                "{complaints} members cannot reach it, {reached_by} could; look at its addresses \
                 in the roster and at its firewall"
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
        presence.reached(0, 7, false);
        assert_eq!(judge(&presence, 0), None);
        presence.reached(0, 8, false);
        assert!(judge(&presence, 0).unwrap().why.starts_with("2 members cannot reach it"));
        assert_eq!(judge(&presence, 2), None);
        presence.reached(0, 8, true);
        assert_eq!(judge(&presence, 0), None, "taken back");
    }
}
