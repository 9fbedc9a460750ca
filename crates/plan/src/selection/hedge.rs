//! Bytes that are late are asked of a second path, too.

use super::{Action, Ending, Failure, Phase, Reason, Selection, path::Owed, ranges};
use std::time::Duration;
use thalweg_units::{PathId, Time};

/// What takes less than max(0.5 s, 4 RTT) is the tail.
const TAIL: Duration = Duration::from_millis(500);
const TAIL_RTTS: u32 = 4;
/// The tail is late after twice the time it should have taken and two round trips.
const LATE: u32 = 2;
/// In the tail a silence of max(0.2 s, 4 RTT) is too long ...
const TAIL_SILENCE: Duration = Duration::from_millis(200);
/// ... elsewhere one of max(1 s, 8 RTT).
const SILENCE: Duration = Duration::from_secs(1);
const SILENCE_RTTS: u32 = 8;
/// All hedges together ask for at most max(1 MiB, 1/16 of the object): no more can come twice.
const BOUND: u64 = 1 << 20;
const BOUND_PART: u64 = 16;

/// Two paths owe the same bytes: `by` was asked for the first of what `owner` owes.
/// Both bring them in the same order, so what came by either is a prefix.
#[derive(Clone, Copy)]
pub(super) struct Hedge {
    pub(super) owner: PathId,
    pub(super) by: PathId,
    since: Time,
}

impl Selection {
    /// The most bytes that may come twice.
    pub fn most_duplicates(&self) -> u64 {
        BOUND.max(self.whole / BOUND_PART)
    }

    /// When something this path owes is late enough to ask another for it.
    fn hedge_due(&self, path: PathId, now: Time) -> Option<Time> {
        let allowed = self.config.ending == Ending::Clear && !self.single && self.hedge.is_none();
        let completing = matches!(self.phase, Phase::Completing(Some(_)));
        if !allowed || !completing || self.hedged >= self.most_duplicates() {
            return None;
        }
        let state = self.paths.get(path.0 as usize)?;
        let owed = state.owed.as_ref()?;
        let heard = owed.heard?;
        self.helper(path, now)?;
        // Unknown before the first byte: then the silence of 1 s decides.
        let rtt = state.rtt().unwrap_or_default();
        let anywhere = heard + SILENCE.max(SILENCE_RTTS * rtt);
        let Some((since, expected)) = owed.tail else { return Some(anywhere) };
        let silent = heard + TAIL_SILENCE.max(TAIL_RTTS * rtt);
        Some(anywhere.min(silent).min(since + LATE * expected + 2 * rtt))
    }

    pub(super) fn next_hedge(&self, now: Time) -> Option<Time> {
        self.everyone().into_iter().filter_map(|p| self.hedge_due(p, now)).min()
    }

    /// Asks a second path for what is late.
    pub(super) fn hedge_if_late(&mut self, now: Time) {
        let late = |p: &PathId| self.hedge_due(*p, now).is_some_and(|t| t <= now);
        let Some(owner) = self.everyone().into_iter().find(late) else { return };
        let Some(by) = self.helper(owner, now) else { return };
        let owes: Vec<_> = self.paths[owner.0 as usize].owes().cloned().collect();
        let room = self.most_duplicates().saturating_sub(self.hedged);
        let wanted = ranges::head(&owes, room);
        self.hedged += ranges::total(&wanted);
        self.hedge = Some(Hedge { owner, by, since: now });
        self.ask(by, wanted, true);
    }

    /// Notes when a path enters the tail.
    pub(super) fn mark_tail(&mut self, path: PathId, now: Time) {
        if !matches!(self.phase, Phase::Completing(_)) {
            return;
        }
        let Some(state) = self.paths.get_mut(path.0 as usize) else { return };
        let (speed, rtt) = (state.speed(), state.rtt().unwrap_or_default());
        let left = ranges::total(state.owes()).max(self.left);
        if let (Some(owed @ Owed { tail: None, .. }), true) = (&mut state.owed, speed > 0.0) {
            let expected = Duration::from_secs_f64((left as f64 / speed).min(1e6));
            owed.tail = (expected < TAIL.max(TAIL_RTTS * rtt)).then_some((now, expected));
        }
    }

    /// After bytes came: whoever owes none that are missing any more is stopped, and an owner
    /// that was silent all the while has stalled.
    pub(super) fn settle_hedge(&mut self, now: Time) {
        let Some(Hedge { owner, by, since }) = self.hedge else { return };
        let mut over = false;
        for path in [owner, by] {
            let state = &mut self.paths[path.0 as usize];
            if !state.is_idle() && ranges::common(&self.missing, state.owes()).is_empty() {
                self.actions.push_back(Action::Stop { path, stalled: false });
                state.give_back();
            }
            over |= state.is_idle();
        }
        if !over {
            return;
        }
        self.hedge = None;
        if self.paths[owner.0 as usize].silent_since().is_some_and(|t| t < since) {
            self.actions.push_back(Action::Stop { path: owner, stalled: true });
            self.fail_because(owner, Failure::Stalled, Reason::Stalled, now);
        } else {
            self.feed_lanes(now);
        }
    }
}
