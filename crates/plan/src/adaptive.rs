//! UKAIRO's Algorithm 2: a client that learns which relays are good for it (§3.2.2).

use rand_core::Rng;
use serde::{Deserialize, Serialize};

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
    pub score: f64,
    /// How many downloads it was tried in.
    pub tried: u64,
}

/// The list L of one client and its test detour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Adaptive {
    known: Vec<Known>,
    test: Option<String>,
}

impl Adaptive {
    /// Takes the oracle's list over: new relays with their scores; those that it no longer
    /// lists go; what was learnt of the others stays.
    pub fn follow(&mut self, ranked: &[(String, f64)]) {
        let _ = ranked;
    }

    /// The list, the best first.
    pub fn known(&self) -> &[Known] {
        &self.known
    }

    /// The test detour.
    pub fn test(&self) -> Option<&str> {
        self.test.as_deref()
    }

    /// The candidates for a download: `s` relays and the test detour, all distinct.
    pub fn candidates(&mut self, s: usize, draw: Draw, random: &mut impl Rng) -> Vec<String> {
        let _ = (s, draw, random);
        vec![]
    }

    /// What a download saw: each relay's gain `d_l(i,j)` over the direct path, from 0 up.
    /// The test detour is redrawn in proportion to score if it did not beat the direct path.
    pub fn learn(&mut self, gains: &[(String, f64)], random: &mut impl Rng) {
        let _ = (gains, random);
    }
}
