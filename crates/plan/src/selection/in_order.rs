//! A stream that is read while it comes: whoever takes the rest begins at its front.
//!
//! Sampled shares lie far apart, and a winner that first finished its own, half of the object
//! ahead, would leave the reader without a byte for as long as that takes. So with
//! [`super::Config::in_order`] the winner asks anew from the front on. Until it has connected
//! and its first bytes are here, the path at the front goes on with what it brings meanwhile:
//! the reader never gets less than that path, the direct one at first, gave it.

use super::{Action, Selection, ranges};
use std::time::Duration;
use thalweg_units::{PathId, Time};

/// So long the path at the front goes on: a second, and this many round trips of the winner,
/// which dials (six by a relay), asks, and is in slow start.
const COVER: Duration = Duration::from_secs(1);
const COVER_RTTS: u32 = 10;
/// At least so much: where a rate is not known yet.
const LEAST: u64 = 1 << 16;

impl Selection {
    /// Who owes the first byte that is missing.
    fn at_front(&self) -> Option<PathId> {
        let front = self.missing.first()?.start;
        let owes = |p: &PathId| {
            let mut owed = self.paths[p.0 as usize].owes();
            owed.any(|r| r.contains(&front))
        };
        self.everyone().into_iter().find(owes)
    }

    /// Before `winner` takes the rest: it gives up what it fetches further ahead; the path at the
    /// front, if it is another one that works, keeps its next bytes and is returned.
    pub(super) fn turn_to_front(&mut self, winner: PathId, now: Time) -> Option<PathId> {
        if !self.config.in_order || self.config.lanes > 1 {
            return None;
        }
        let front = self.at_front();
        if front == Some(winner) {
            return None;
        }
        let state = &mut self.paths[winner.0 as usize];
        if !state.is_idle() {
            state.give_back();
            self.actions.push_back(Action::Stop { path: winner, stalled: false });
        }
        let cover = COVER + COVER_RTTS * state.rtt().unwrap_or_default();
        let silent = |p: &PathId| {
            let heard = self.paths[p.0 as usize].silent_since();
            heard.is_some_and(|t| now.since(t) >= COVER)
        };
        let front = front.filter(|p| !silent(p))?;
        let kept = LEAST.max((self.speed(front) * cover.as_secs_f64()) as u64);
        let state = &mut self.paths[front.0 as usize];
        let owed = ranges::total(state.owes());
        state.give_back_share();
        // Nobody's now: the winner takes it.
        state.surrender(owed.saturating_sub(kept));
        Some(front)
    }

    /// Whether nobody fetches what the reader waits for.
    pub(super) fn is_front_lost(&self) -> bool {
        self.config.in_order && self.at_front().is_none()
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod tests {
    use super::super::{Config, Phase, Reason, simulation};
    use super::*;
    use simulation::{Script, run};

    const MB: u64 = 1_000_000;

    /// What each path was asked for once the choice was made.
    fn asked(in_order: bool) -> Vec<(PathId, u64)> {
        let config = Config { in_order, ..Config::default() };
        let scripts = [Script::steady(5.0), Script::steady(50.0)];
        let outcome = run(config, &scripts, &[0..32 * MB]);
        assert_eq!(outcome.phase, Phase::Done);
        let chosen = |a: &Action| matches!(a, Action::Chosen { path: PathId(1), reason } if *reason != Reason::OnlyPath);
        let after = outcome.actions.iter().map(|(_, a)| a).skip_while(|a| !chosen(a));
        let fetch = |a: &Action| match a {
            Action::Fetch { path, ranges, .. } => Some((*path, ranges.first()?.start)),
            _ => None,
        };
        after.filter_map(fetch).collect()
    }

    #[test]
    fn the_winner_begins_behind_what_the_direct_path_still_brings() {
        let first = asked(true)[0];
        assert!(first.0 == PathId(1) && first.1 < 6 * MB, "{first:?}");
    }

    #[test]
    fn without_a_reader_the_winners_own_request_goes_on() {
        let later = asked(false);
        assert_eq!(later.len(), 1, "it asks for the remainders when its share is done");
    }
}
