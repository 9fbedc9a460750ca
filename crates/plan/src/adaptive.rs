//! UKAIRO's Algorithm 2: a client that learns which relays are good for it (§3.2.2).

use crate::{draw, ranking::MOST_GAIN};
use rand_core::Rng;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The longest list: more relays than a client can try, and a bound on what it stores.
pub const MOST_KNOWN: usize = 1_024;

/// The weight that every relay gets on top of its score in a draw, as a fraction of the mean score.
///
/// Differs from UKAIRO, which draws in proportion to score alone. There, the mean with a gain of 0 halves a score, so a
/// relay to which the oracle gave 0 would never be drawn, nor one that failed several times. Here, each of n relays is
/// drawn with a probability of at least `EXPLORE/(1 + EXPLORE)/n`, about 1/21 of a uniform draw's. If all scores are 0,
/// the draw is uniform.
pub const EXPLORE: f64 = 0.05;

/// How the s candidates are taken from the list. The paper's text and its algorithm differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// "each node is chosen with probability proportional to its current score" (text).
    #[default]
    Proportional,
    /// "get top-s detours from L" (line 6).
    Top,
}

/// One relay of the list L.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownRelay {
    pub relay: String,
    /// Its score: the oracle's, then the mean of itself and each new d_l(i,j). From 0 to [`MOST_GAIN`].
    pub score: f64,
    /// The number of downloads in which it was tried.
    pub tried: u64,
}

/// The list L of one client and its test detour.
///
/// It is read from files that others may have changed: scores out of range are clipped, duplicates are dropped, and a
/// test detour that is not in the list is cleared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredRelays")]
pub struct AdaptiveRelays {
    known: Vec<KnownRelay>,
    test: Option<String>,
}

/// An [`AdaptiveRelays`] as read from a file, before it is validated.
#[derive(Deserialize)]
struct StoredRelays {
    #[serde(default)]
    known: Vec<KnownRelay>,
    #[serde(default)]
    test: Option<String>,
}

impl From<StoredRelays> for AdaptiveRelays {
    fn from(stored: StoredRelays) -> Self {
        let mut adaptive = Self { known: stored.known, test: stored.test };
        adaptive.tidy();
        adaptive
    }
}

impl AdaptiveRelays {
    /// Takes over the oracle's list. New relays get the oracle's scores, relays that it no longer lists are removed,
    /// and what was learnt of the others stays. A relay that was never tried gets the oracle's newest score. Beyond
    /// [`MOST_KNOWN`] relays, those with the lowest scores are left out.
    pub fn follow(&mut self, ranked: &[(String, f64)]) {
        let learnt = self.known.drain(..).filter(|k| k.tried > 0).map(|k| (k.relay.clone(), k));
        let mut learnt: BTreeMap<String, KnownRelay> = learnt.collect();
        let entry = |(relay, score): &(String, f64)| {
            let new = || KnownRelay { relay: relay.clone(), score: *score, tried: 0 };
            learnt.remove(relay).unwrap_or_else(new)
        };
        self.known = ranked.iter().map(entry).collect();
        self.tidy();
    }

    /// Restores the invariants: no duplicates, valid scores in descending order, a bounded list, a listed test detour.
    fn tidy(&mut self) {
        let mut seen = BTreeSet::new();
        self.known.retain(|k| seen.insert(k.relay.clone()));
        for k in &mut self.known {
            k.score = valid(k.score).unwrap_or(0.0);
        }
        self.rank();
        self.known.truncate(MOST_KNOWN);
        self.test = self.test.take().filter(|t| self.known.iter().any(|k| k.relay == *t));
    }

    /// Sorts by score (line 5). Ties keep their order, which at first is the oracle's.
    fn rank(&mut self) {
        self.known.sort_by(|a, b| b.score.total_cmp(&a.score));
    }

    /// The list, the highest score first.
    pub fn known(&self) -> &[KnownRelay] {
        &self.known
    }

    /// The name of the detour under test.
    pub fn test(&self) -> Option<&str> {
        self.test.as_deref()
    }

    /// The candidates for a download: `s` relays and the test detour, all distinct, the test
    /// detour last; fewer if the list is shorter.
    ///
    /// The test detour stays the same until it loses. With [`Draw::Proportional`] the others are drawn without it. With
    /// [`Draw::Top`], a test detour that has risen into the top s counts as one of those, and another relay is drawn as
    /// test detour: otherwise a test detour that keeps winning would end all exploration.
    pub fn candidates(
        &mut self,
        s: usize,
        draw: Draw,
        random: &mut (impl Rng + ?Sized),
    ) -> Vec<String> {
        self.candidates_among(s, draw, |_| true, random)
    }

    /// As [`AdaptiveRelays::candidates`], but only from the relays that are `usable` in this download: terms, rules or
    /// a quarantine may forbid others. A test detour that is not usable is redrawn.
    pub fn candidates_among(
        &mut self,
        s: usize,
        draw: Draw,
        usable: impl Fn(&str) -> bool,
        random: &mut (impl Rng + ?Sized),
    ) -> Vec<String> {
        let names = self.known.iter().map(|k| k.relay.clone());
        let (open, barred): (Vec<String>, Vec<String>) = names.partition(|name| usable(name));
        self.test = self.test.take().filter(|t| !barred.contains(t));
        let without = |taken: &[String]| [&barred[..], taken].concat();
        let mut taken: Vec<String> = match draw {
            Draw::Top => open.into_iter().take(s).collect(),
            Draw::Proportional => {
                if self.test.is_none() {
                    self.test = self.drawn(&barred, random);
                }
                let mut taken: Vec<String> = self.test.iter().cloned().collect();
                let tests = taken.len();
                for _ in 0..s {
                    taken.extend(self.drawn(&without(&taken), random));
                }
                taken.split_off(tests)
            }
        };
        if self.test.as_ref().is_none_or(|t| taken.contains(t)) {
            self.test = self.drawn(&without(&taken), random);
        }
        taken.extend(self.test.clone());
        taken
    }

    /// Draws a relay that is not in `taken`, with probability in proportion to its score (and see [`EXPLORE`]).
    fn drawn(&self, taken: &[String], random: &mut (impl Rng + ?Sized)) -> Option<String> {
        let sum: f64 = self.known.iter().map(|k| k.score).sum();
        let least = match sum * EXPLORE / self.known.len() as f64 {
            least if least > 0.0 => least,
            _ => 1.0,
        };
        let weight = |k: &KnownRelay| if taken.contains(&k.relay) { 0.0 } else { k.score + least };
        let weights: Vec<f64> = self.known.iter().map(weight).collect();
        let at = draw::weighted(&weights, random)?;
        self.known.get(at).map(|k| k.relay.clone())
    }

    /// Updates the scores with the gains that a download measured: `d_l(i,j)` of each tried relay over the direct path,
    /// from 0 up, and 0 for a relay that failed. `score ← mean(score, gain)`, clipped at [`MOST_GAIN`]. Relays that are
    /// not listed and gains that are not numbers are ignored.
    ///
    /// If the test detour did not beat the direct path (lines 7–8), another relay is drawn in proportion to score; if
    /// there is no other, it stays.
    pub fn learn(&mut self, gains: &[(String, f64)], random: &mut (impl Rng + ?Sized)) {
        let mut lost = false;
        for (relay, gain) in gains {
            let known = self.known.iter_mut().find(|k| k.relay == *relay);
            let (Some(known), Some(gain)) = (known, valid(*gain)) else { continue };
            known.score = f64::midpoint(known.score, gain);
            known.tried += 1;
            lost |= gain <= 0.0 && self.test.as_ref() == Some(relay);
        }
        self.rank();
        if lost {
            let last: Vec<String> = self.test.take().into_iter().collect();
            self.test = self.drawn(&last, random).or_else(|| last.into_iter().next());
        }
    }
}

/// Clamps a score to its range; `None` for NaN.
fn valid(score: f64) -> Option<f64> {
    (!score.is_nan()).then(|| score.clamp(0.0, MOST_GAIN))
}
