//! The oracle's list, and what was learned about its relays. Pure.

use super::RelayList;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thalweg_plan::adaptive::{AdaptiveRelays, Draw, KnownRelay};
use thalweg_units::WallTime;

/// The most relays that are kept although a newer list of the oracle does not contain them: the best ones that were
/// tried. A load-aware oracle draws each list again, and what was learned would be lost. UKAIRO's clients know k = 50
/// relays (§4).
const MOST_LEARNED: usize = 50;

/// A change, which can be replayed on what another process wrote.
#[derive(Clone, Debug)]
pub(super) enum DetourChange {
    /// The oracle gave a list.
    Follow(RelayList),
    /// Candidates were drawn, without the barred ones.
    Draw { s: usize, draw: Draw, barred: BTreeSet<String>, seed: u64 },
    /// A download observed gains of relays.
    Learn { gains: Vec<(String, f64)>, seed: u64 },
    /// The oracle was asked at this time and did not answer.
    Unanswered(WallTime),
    /// Everything is forgotten.
    Clear,
}

/// The complete state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct DetourState {
    pub(super) listed: Option<RelayList>,
    #[serde(default)]
    pub(super) adaptive: AdaptiveRelays,
    /// When the oracle was last asked without an answer, since it gave the list.
    #[serde(default)]
    pub(super) unanswered: Option<WallTime>,
}

impl DetourState {
    pub(super) fn apply(&mut self, change: &DetourChange) {
        match change {
            DetourChange::Follow(listed) => self.follow(listed),
            DetourChange::Draw { s, draw, barred, seed } => {
                self.draw(*s, *draw, barred, *seed);
            }
            DetourChange::Learn { gains, seed } => {
                self.adaptive.learn(gains, &mut generator(*seed))
            }
            DetourChange::Unanswered(at) => self.unanswered = Some(*at),
            DetourChange::Clear => *self = Self::default(),
        }
    }

    /// Algorithm 2's candidates, the test detour last.
    pub(super) fn draw(
        &mut self,
        s: usize,
        draw: Draw,
        barred: &BTreeSet<String>,
        seed: u64,
    ) -> Vec<String> {
        let usable = |relay: &str| !barred.contains(relay);
        self.adaptive.candidates_among(s, draw, usable, &mut generator(seed))
    }

    /// Takes over a list. The last one counts, whatever its date, because clocks may be corrected.
    fn follow(&mut self, listed: &RelayList) {
        let given = listed.reply.candidates.iter();
        let mut ranked: Vec<(String, f64)> =
            given.map(|c| (c.relay.to_string(), c.score)).collect();
        let named: BTreeSet<&str> = ranked.iter().map(|(relay, _)| relay.as_str()).collect();
        let gone = |k: &&KnownRelay| k.tried > 0 && !named.contains(k.relay.as_str());
        let learnt = self.adaptive.known().iter().filter(gone).take(MOST_LEARNED);
        let learnt: Vec<_> = learnt.map(|k| (k.relay.clone(), k.score)).collect();
        ranked.extend(learnt);
        self.adaptive.follow(&ranked);
        self.listed = Some(listed.clone());
        self.unanswered = None;
    }
}

fn generator(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}
