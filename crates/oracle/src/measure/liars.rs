//! Tests of how much liars can influence the ranking.
//!
//! A liar can report any rate for its own legs, and can throttle them. A leg's rate is the lower of its two ends'
//! reports. So a leg between two liars can have any rate, and a leg between a liar and an honest node can be reported
//! slower than it is, but not faster. A relay's score is a sum over pairs, and pairs that begin or end at liars can be
//! false entirely. The ranking therefore ignores the tenth of all nodes whose pairs lift a relay most. Colluding liars
//! up to that number cannot get a relay among the best unless it is truly almost as good.
//!
//! Downwards, k liars among n nodes change an honest relay's score by at most [`ROBUST_MOST_GAIN`] · 2k / (n − 2): the
//! greatest gain, times the share of pairs that begin or end at a liar.

use super::{
    estimate_table::{EstimateTable, Leg, TableEntry},
    nodes::Slot,
    ranking::RankingInput,
};
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng as _, SeedableRng as _},
};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_measure::Method;
use thalweg_plan::{
    Graph,
    ranking::{ROBUST_MOST_GAIN, Ranking},
};
use thalweg_units::{Rate, Time};

const NOW: Time = Time::from_nanos(1_000_000_000);

/// The number of relays that UKAIRO's clients get (§2.2.3).
const BEST: usize = 5;

/// A rate that no leg of these meshes has, bit/s.
const ABSURD: f64 = 9e10;

/// A mesh. Its first nodes are honest, the others are liars.
#[derive(Clone, Copy)]
struct Mesh {
    honest: Slot,
    liars: Slot,
    seed: u64,
}

/// The two ends' reports on a leg with the rate `truth`. Liars are numbered from 0; honest ends are `None`.
type Report = fn(from: Option<Slot>, to: Option<Slot>, truth: f64) -> (f64, f64);

/// Each end reports the truth.
fn truly(_: Option<Slot>, _: Option<Slot>, truth: f64) -> (f64, f64) {
    (truth, truth)
}

/// Each liar reports 90 Gbit/s for its own legs.
fn absurdly(from: Option<Slot>, to: Option<Slot>, truth: f64) -> (f64, f64) {
    let says = |end: Option<Slot>| if end.is_some() { ABSURD } else { truth };
    (says(from), says(to))
}

/// Senders report the truth; each liar reports 90 Gbit/s as a receiver.
fn as_receiver(_: Option<Slot>, to: Option<Slot>, truth: f64) -> (f64, f64) {
    (truth, if to.is_some() { ABSURD } else { truth })
}

/// Liars report 90 Gbit/s between each other, and a thousandth of the truth for legs from honest nodes.
fn in_league(from: Option<Slot>, to: Option<Slot>, truth: f64) -> (f64, f64) {
    match (from, to) {
        (Some(_), Some(_)) => (ABSURD, ABSURD),
        (None, Some(_)) => (truth, truth / 1000.0),
        // The legs that a liar's detours need stay true, so that the low reports have an effect.
        _ => (truth, truth),
    }
}

/// Liars report 90 Gbit/s within pairs.
fn in_pairs(from: Option<Slot>, to: Option<Slot>, truth: f64) -> (f64, f64) {
    match (from, to) {
        (Some(a), Some(b)) if a / 2 == b / 2 => (ABSURD, ABSURD),
        _ => (truth, truth),
    }
}

/// The first liar is to be lifted. The other liars have fast legs only to other liars, and legs to honest nodes so slow
/// that each of their pairs needs a detour over the first.
fn for_the_first(from: Option<Slot>, to: Option<Slot>, truth: f64) -> (f64, f64) {
    match (from, to) {
        (Some(_), Some(_)) => (ABSURD, ABSURD),
        (Some(1..), None) | (None, Some(1..)) => (truth / 1000.0, truth / 1000.0),
        _ => (truth, truth),
    }
}

const LIES: [(&str, Report); 5] = [
    ("absurdly", absurdly),
    ("as receivers", as_receiver),
    ("in league", in_league),
    ("in pairs", in_pairs),
    ("for the first", for_the_first),
];

impl Mesh {
    fn nodes(self) -> Slot {
        self.honest + self.liars
    }

    fn liar(self, slot: Slot) -> Option<Slot> {
        slot.checked_sub(self.honest)
    }

    /// Rates from the access rates of both ends and a random factor of the path.
    fn rates(self) -> Vec<Vec<f64>> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut unit = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let nodes = self.nodes() as usize;
        let access: Vec<_> = (0..nodes).map(|_| 1e6 * 300_f64.powf(unit())).collect();
        let leg = |i: usize, j: usize, luck: f64| access[i].min(access[j]) * 20_f64.powf(-luck);
        let row = |i| (0..nodes).map(|j| leg(i, j, unit())).collect::<Vec<_>>();
        (0..nodes).map(row).collect()
    }

    /// The ranking that the oracle makes of these reports.
    fn ranking(self, says: Report) -> Ranking {
        let (rates, mut known) = (self.rates(), EstimateTable::new());
        known.resize(self.nodes(), &[], NOW);
        let pairs = (0..self.nodes()).flat_map(|i| (0..self.nodes()).map(move |j| (i, j)));
        for leg in pairs.filter(|(i, j)| i != j) {
            let truth = rates[leg.0 as usize][leg.1 as usize];
            enter_reports(&mut known, leg, says(self.liar(leg.0), self.liar(leg.1), truth));
        }
        let trust: Vec<f64> = (0..self.nodes()).map(|slot| known.trust(slot)).collect();
        RankingInput::of(&known, NOW).rank().ranking.discounted(|slot| trust[slot])
    }

    /// The scores of the honest relays.
    fn scores(self, ranking: &Ranking) -> BTreeMap<usize, f64> {
        let honest = ranking.scores().iter().filter(|s| s.relay < self.honest as usize);
        honest.map(|s| (s.relay, s.score)).collect()
    }

    /// The most by which the liars can change an honest relay's score.
    fn bound(self) -> f64 {
        ROBUST_MOST_GAIN * 2.0 * f64::from(self.liars) / f64::from(self.nodes() - 2)
    }
}

fn enter_reports(known: &mut EstimateTable, leg: Leg, (sender, receiver): (f64, f64)) {
    let judged = known.judge(leg, Some(sender), Some(receiver), (NOW, true));
    let (verdict, reporter, _) = judged.unwrap();
    let (bps, bound, is_sole) = (verdict.bps, verdict.bound, verdict.is_sole);
    let (spread, method, at) = (None, Method::Transfer, NOW);
    known.enter(&TableEntry { leg, bps, spread, method, bound, reporter, is_sole, at }, NOW);
}

fn best(ranking: &Ranking) -> Vec<usize> {
    ranking.scores().iter().take(BEST).map(|s| s.relay).collect()
}

#[test]
fn one_boasting_liar_changes_nothing_because_the_lower_report_counts() {
    for seed in 1..=10 {
        let mesh = Mesh { honest: 20, liars: 1, seed };
        let honest = mesh.ranking(truly);
        for lied in [absurdly, as_receiver].map(|says: Report| mesh.ranking(says)) {
            assert_eq!(mesh.scores(&honest), mesh.scores(&lied), "seed {seed}");
            let place = |r: &Ranking| r.scores().iter().position(|s| s.relay == 20);
            assert!(place(&lied) >= place(&honest), "seed {seed}: the liar rose");
        }
    }
}

/// The worst true score of a liar among the best five, as a share of the true fifth's.
fn worst_risen(mesh: Mesh, says: Report) -> f64 {
    let (truth, reported) = (mesh.ranking(truly), mesh.ranking(says));
    let fifth = truth.scores()[BEST - 1].score;
    let of = |relay: usize| truth.scores().iter().find(|s| s.relay == relay).unwrap().score;
    let liars = best(&reported).into_iter().filter(|relay| *relay >= mesh.honest as usize);
    liars.map(|relay| of(relay) / fifth).fold(f64::INFINITY, f64::min)
}

#[test]
fn a_tenth_of_colluding_liars_lift_only_a_nearly_as_good_relay_into_the_best_five() {
    for liars in [1, 2, 5] {
        for (name, says) in LIES {
            let meshes = (1..=8).map(|seed| Mesh { honest: 50 - liars, liars, seed });
            let worst = meshes.map(|mesh| worst_risen(mesh, says)).fold(f64::INFINITY, f64::min);
            println!("{liars} of 50, {name}: the worst has {worst:.2} of the fifth's score");
            assert!(worst >= 0.8, "{liars} liars, {name}: {worst:.2} of the fifth's true score");
        }
    }
}

#[test]
fn without_the_guard_liars_lift_a_bad_relay_into_the_best_five() {
    // With the same reports and Eq. (3) unchanged, the test above fails.
    let risen = (1..=8).any(|seed| {
        let mesh = Mesh { honest: 45, liars: 5, seed };
        let graph = |says: Report| {
            let (rates, mut graph) = (mesh.rates(), Graph::new(50));
            for (i, j) in (0..50).flat_map(|i| (0..50).map(move |j| (i, j))) {
                let (sent, seen) = says(mesh.liar(i), mesh.liar(j), rates[i as usize][j as usize]);
                let rate = Rate::from_bps(sent.min(seen) as u64);
                graph.set(i as usize, j as usize, (i != j).then_some(rate));
            }
            Ranking::oblivious(&graph)
        };
        let (truth, reported) = (graph(truly), graph(for_the_first));
        best(&reported).contains(&45) && !truth.scores()[..15].iter().any(|s| s.relay == 45)
    });
    assert!(risen, "the lies are too weak to show anything");
}

#[test]
fn colluding_liars_change_an_honest_score_by_at_most_the_bound() {
    let mut changes = 0;
    for (liars, seed) in (1..=3).flat_map(|k| (1..=10).map(move |seed| (k, seed))) {
        let mesh = Mesh { honest: 20, liars, seed };
        let truth = mesh.ranking(truly);
        for (name, says) in LIES {
            let reported = mesh.ranking(says);
            let (before, after) = (mesh.scores(&truth), mesh.scores(&reported));
            for (relay, score) in &before {
                let moved = (after[relay] - score).abs();
                assert!(moved <= mesh.bound(), "{liars} {name}, {seed}: {relay} by {moved}");
            }
            let five = |r: &Ranking| best(r).into_iter().collect::<BTreeSet<_>>();
            changes += five(&truth).difference(&five(&reported)).count();
        }
    }
    assert!(changes > 0, "no lie had any effect: the test shows nothing");
}

/// The true gain of a ranking's best five relays: the mean over pairs of the best path's rate over the direct rate.
fn gain(rates: &[Vec<f64>], relays: &[usize]) -> f64 {
    let (mut sum, mut pairs) = (0.0, 0.0);
    for (i, row) in rates.iter().enumerate() {
        for (j, direct) in row.iter().enumerate().filter(|(j, _)| *j != i) {
            let by = relays.iter().filter(|l| **l != i && **l != j);
            let best = by.map(|l| rates[i][*l].min(rates[*l][j])).fold(*direct, f64::max);
            sum += best / direct;
            pairs += 1.0;
        }
    }
    sum / pairs
}

#[test]
fn among_honest_nodes_the_guard_costs_little() {
    let (mut guarded, mut plain) = (0.0, 0.0);
    for seed in 1..=8 {
        let mesh = Mesh { honest: 50, liars: 0, seed };
        let rates = mesh.rates();
        let cells = |row: &Vec<f64>| row.iter().map(|r| Some(Rate::from_bps(*r as u64))).collect();
        let graph = Graph::from_matrix(&rates.iter().map(cells).collect::<Vec<_>>());
        guarded += gain(&rates, &best(&mesh.ranking(truly)));
        plain += gain(&rates, &best(&Ranking::oblivious(&graph)));
    }
    println!("best five by the guarded ranking {guarded:.2}, by Eq. (3) {plain:.2}");
    assert!(guarded >= 0.97 * plain, "{guarded} of {plain}");
}
