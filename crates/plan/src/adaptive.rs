//! UKAIRO's Algorithm 2: a client that learns which relays are good for it (§3.2.2).

use crate::{draw, ranking::MOST_GAIN};
use rand_core::Rng;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The longest list: more relays than a client can try, and a bound on what it stores.
pub const MOST_KNOWN: usize = 1_024;

/// What every relay's weight gets in a draw, as a fraction of the mean score.
///
/// Differs: UKAIRO draws in proportion to score alone. But a mean with a gain of 0 halves a
/// score, and a relay that the oracle gave 0 would never be drawn, nor one that failed some
/// times ever again. With this, each relay of n is drawn with a probability of at least
/// `EXPLORE/(1 + EXPLORE)/n`, some 1/21 of a uniform draw's; if all scores are 0, uniformly.
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
pub struct Known {
    /// Its name.
    pub relay: String,
    /// Its score: the oracle's, then the mean of itself and each new d_l(i,j).
    /// From 0 to [`MOST_GAIN`].
    pub score: f64,
    /// How many downloads it was tried in.
    pub tried: u64,
}

/// The list L of one client and its test detour.
///
/// It is read from files that others may have changed: scores out of range are clipped,
/// doubles dropped, and a test detour that is not listed forgotten.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Adaptive {
    known: Vec<Known>,
    test: Option<String>,
}

/// An [`Adaptive`] as it was read.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    known: Vec<Known>,
    #[serde(default)]
    test: Option<String>,
}

impl From<Stored> for Adaptive {
    fn from(stored: Stored) -> Self {
        let mut adaptive = Self { known: stored.known, test: stored.test };
        adaptive.tidy();
        adaptive
    }
}

impl Adaptive {
    /// Takes the oracle's list over: new relays with their scores; those that it no longer
    /// lists go; what was learnt of the others stays. Scores that were never tried are the
    /// oracle's newest. Beyond [`MOST_KNOWN`] the lowest scores are left out.
    pub fn follow(&mut self, ranked: &[(String, f64)]) {
        let learnt = self.known.drain(..).filter(|k| k.tried > 0).map(|k| (k.relay.clone(), k));
        let mut learnt: BTreeMap<String, Known> = learnt.collect();
        let entry = |(relay, score): &(String, f64)| {
            let new = || Known { relay: relay.clone(), score: *score, tried: 0 };
            learnt.remove(relay).unwrap_or_else(new)
        };
        self.known = ranked.iter().map(entry).collect();
        self.tidy();
    }

    /// Restores what always holds.
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

    /// Line 5. Equal scores stay in the order that they had: the oracle's, at first.
    fn rank(&mut self) {
        self.known.sort_by(|a, b| b.score.total_cmp(&a.score));
    }

    /// The list, the best first.
    pub fn known(&self) -> &[Known] {
        &self.known
    }

    /// The test detour.
    pub fn test(&self) -> Option<&str> {
        self.test.as_deref()
    }

    /// The candidates for a download: `s` relays and the test detour, all distinct, the test
    /// detour last; fewer if the list is shorter.
    ///
    /// The test detour stays the same until it loses. With [`Draw::Proportional`] the others
    /// are drawn without it. With [`Draw::Top`] one that has risen to the top s is taken
    /// there, and another one is drawn to test: else a test detour that keeps winning would
    /// end all exploration.
    pub fn candidates(
        &mut self,
        s: usize,
        draw: Draw,
        random: &mut (impl Rng + ?Sized),
    ) -> Vec<String> {
        self.candidates_among(s, draw, |_| true, random)
    }

    /// As [`Adaptive::candidates`], of the relays that are `usable` in this download: terms,
    /// rules or a quarantine may forbid others. A test detour that is not usable is redrawn.
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

    /// One that is not taken, with probability in proportion to score (and see [`EXPLORE`]).
    fn drawn(&self, taken: &[String], random: &mut (impl Rng + ?Sized)) -> Option<String> {
        let sum: f64 = self.known.iter().map(|k| k.score).sum();
        let least = match sum * EXPLORE / self.known.len() as f64 {
            least if least > 0.0 => least,
            _ => 1.0,
        };
        let weight = |k: &Known| if taken.contains(&k.relay) { 0.0 } else { k.score + least };
        let weights: Vec<f64> = self.known.iter().map(weight).collect();
        let at = draw::weighted(&weights, random)?;
        self.known.get(at).map(|k| k.relay.clone())
    }

    /// What a download saw: each relay's gain `d_l(i,j)` over the direct path, from 0 up; 0 too
    /// for one that failed. `score ← mean(score, gain)`, clipped at [`MOST_GAIN`]; relays that
    /// are not listed and numbers that are none are passed over.
    ///
    /// The test detour is redrawn in proportion to score if it did not beat the direct path
    /// (lines 7–8): another one, if there is one.
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

/// A score in its range; `None` if it is no number.
fn valid(score: f64) -> Option<f64> {
    (!score.is_nan()).then(|| score.clamp(0.0, MOST_GAIN))
}
