//! What happens because nothing happened.

use super::{Action, Failure, Phase, Reason, Selection, path::PathState};
use std::time::Duration;
use thalweg_units::Time;

impl Selection {
    /// Lets time pass: ends sampling at its window, asks a second path for what is late,
    /// gives up stalled paths.
    pub fn tick(&mut self, now: Time) {
        for path in self.everyone() {
            let silent = self.paths[path.0 as usize].silent_since();
            if silent.is_some_and(|t| now.since(t) >= self.config.stall) {
                self.actions.push_back(Action::Stop { path, stalled: true });
                self.failed(path, Failure::Stalled, now);
            }
        }
        match self.phase {
            Phase::Sampling => self.end_sampling_if_due(now),
            Phase::Completing(None) => self.resume(now),
            _ => {}
        }
        // Who was chosen just now may have been silent for long.
        self.hedge_if_late(now);
    }

    /// Goes on when a path that was to be left alone may be asked again, or the expected
    /// path of a small object has been waited for long enough.
    fn resume(&mut self, now: Time) {
        let there = self.paths.iter().any(|p| p.is_usable(now));
        if there {
            self.begin(self.single.then_some(Reason::Busy), now);
        }
    }

    /// When [`Selection::tick`] is needed at the latest, if nothing else happens.
    pub fn deadline(&self) -> Option<Time> {
        let stall = |p: &PathState| p.silent_since().map(|t| t + self.config.stall);
        let stalls = self.paths.iter().filter_map(stall);
        let phase = match self.phase {
            Phase::Sampling => Some(self.since + self.config.window),
            Phase::Completing(None) => {
                let free = self.paths.iter().filter_map(PathState::free_at).min();
                free.into_iter().chain(self.next_small(self.since)).min()
            }
            // Any time would do: who may help does not hang on it while a path is chosen.
            Phase::Completing(Some(_)) => self.next_hedge(self.looked),
            _ => return None,
        };
        stalls.chain(phase).min()
    }

    /// The caller was busy for `d` and no path could have delivered: their clocks,
    /// and the window's, stand still for so long.
    pub fn paused(&mut self, d: Duration) {
        self.since += d;
        self.looked += d;
        self.lanes_since += d;
        self.drift.paused(d);
        self.alone.iter_mut().for_each(|a| a.paused(d));
        self.paths.iter_mut().for_each(|p| p.paused(d));
    }
}
