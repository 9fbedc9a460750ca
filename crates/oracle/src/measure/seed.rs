//! Known legs out of nowhere: for experiments with meshes that nobody has.

use super::{known::Entry, state::State};
use crate::Oracle;
use std::time::Duration;
use thalweg_measure::{Bound, Method};
use thalweg_units::Time;
use thalweg_wire::mesh::Name;

/// One measured leg.
#[derive(Clone, Debug)]
pub struct Leg {
    /// The sender's position among the roster's members.
    pub from: usize,
    /// The receiver's.
    pub to: usize,
    /// bit/s.
    pub bps: f64,
    /// How long ago it was measured.
    pub age: Duration,
}

impl Oracle {
    /// Takes these legs for measured, as if both ends had reported them; nothing is kept. For
    /// experiments: who is an oracle's owner can as well write to its database.
    pub async fn assume(&self, legs: impl IntoIterator<Item = Leg>) {
        let measuring = &*self.inner.measuring;
        let newest = self.newest();
        let names: Vec<&Name> = newest.roster.members.iter().map(|m| &m.name).collect();
        let mut state = measuring.state.lock().await;
        let now = measuring.now().time;
        state.follow(&newest.roster, &self.inner.node, now);
        for leg in legs {
            state.assume(&names, &leg, now);
        }
        drop(state);
        measuring.news.notify_one();
    }

    /// All members ask for orders just now, as far as the service knows. For experiments.
    pub async fn assume_present(&self) {
        let measuring = &*self.inner.measuring;
        let newest = self.newest();
        let mut state = measuring.state.lock().await;
        let now = measuring.now().time;
        state.follow(&newest.roster, &self.inner.node, now);
        (0..state.nodes.len()).for_each(|slot| state.presence.heard(slot, now));
    }

    /// Ranks all that is known now: the legs, how long the table was read, and how long it was
    /// ranked. Blocks. For experiments.
    pub fn rank_timed(&self) -> (usize, Duration) {
        let began = std::time::Instant::now();
        let ranked = self.inner.measuring.rank_now();
        (ranked.graph.measured(), began.elapsed())
    }
}

impl State {
    fn assume(&mut self, names: &[&Name], leg: &Leg, now: Time) {
        let slot = |at: usize| names.get(at).and_then(|name| self.nodes.by_name(name));
        let (Some(from), Some(to)) = (slot(leg.from), slot(leg.to)) else { return };
        let entry = Entry {
            leg: (from, to),
            bps: leg.bps,
            spread: None,
            method: Method::Transfer,
            bound: Bound::Exact,
            reporter: self.known.own(),
            is_sole: false,
            at: now - leg.age,
        };
        self.enter(&entry, now);
    }
}
