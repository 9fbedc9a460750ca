//! Liars in a mesh, and what they can do to the ranking.
//!
//! The bound: k liars among n nodes move an honest relay's score by at most
//! [`ROBUST_MOST_GAIN`] · 2k / (n − 2), the greatest gain times the share of the pairs that begin
//! or end at one of them: nothing else of what they say is about it. So a relay takes another's
//! place among the five best only if their true scores differ by at most twice that. One liar
//! that only boasts changes nothing at all, since the other end is believed.

use super::{
    known::{Entry, Known, Leg},
    nodes::Slot,
    ranked::Picture,
};
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng as _, SeedableRng as _},
};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_measure::Method;
use thalweg_plan::ranking::{ROBUST_MOST_GAIN, Ranking};
use thalweg_units::Time;

const HONEST: Slot = 20;
const NOW: Time = Time::from_nanos(1_000_000_000);

/// What one end says of a leg that moves so much.
type Says = fn(leg: Leg, truth: f64, is_liar: &dyn Fn(Slot) -> bool) -> (f64, f64);

/// Each end tells the truth.
fn truly(_: Leg, truth: f64, _: &dyn Fn(Slot) -> bool) -> (f64, f64) {
    (truth, truth)
}

/// Each liar says 90 Gbit/s of its own legs.
fn absurdly(leg: Leg, truth: f64, is_liar: &dyn Fn(Slot) -> bool) -> (f64, f64) {
    let says = |slot: Slot| if is_liar(slot) { 9e10 } else { truth };
    (says(leg.0), says(leg.1))
}

/// Liars praise each other's legs and make all others' to and from them a thousandth.
fn in_league(leg: Leg, truth: f64, is_liar: &dyn Fn(Slot) -> bool) -> (f64, f64) {
    match (is_liar(leg.0), is_liar(leg.1)) {
        (true, true) => (9e10, 9e10),
        (false, false) => (truth, truth),
        // What a relay's detours need stays true, so that the slander counts.
        (true, false) => (truth, truth),
        (false, true) => (truth, truth / 1000.0),
    }
}

/// Rates by what each node can send and receive, and the path's own luck.
fn matrix(nodes: Slot, seed: u64) -> Vec<Vec<f64>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut unit = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let access: Vec<_> = (0..nodes).map(|_| 1e6 * 300_f64.powf(unit())).collect();
    let leg = |i: usize, j: usize, luck: f64| access[i].min(access[j]) * 20_f64.powf(-luck);
    let row = |i| (0..nodes as usize).map(|j| leg(i, j, unit())).collect::<Vec<_>>();
    (0..nodes as usize).map(row).collect()
}

/// The ranking of what all ends say.
fn ranking(liars: Slot, seed: u64, says: Says) -> Ranking {
    let nodes = HONEST + liars;
    let (rates, mut known) = (matrix(nodes, seed), Known::new());
    known.resize(nodes, &[], NOW);
    let is_liar = |slot: Slot| slot >= HONEST;
    let pairs = (0..nodes).flat_map(|i| (0..nodes).map(move |j| (i, j)));
    for leg in pairs.filter(|(i, j)| i != j) {
        let truth = rates[leg.0 as usize][leg.1 as usize];
        let (sender, receiver) = says(leg, truth, &is_liar);
        let judged = known.judge(leg, Some(sender), Some(receiver), NOW);
        let (verdict, reporter, _) = judged.unwrap();
        let (bps, bound, is_sole) = (verdict.bps, verdict.bound, verdict.is_sole);
        let (spread, method, at) = (None, Method::Transfer, NOW);
        known.enter(&Entry { leg, bps, spread, method, bound, reporter, is_sole, at }, NOW);
    }
    let trust: Vec<f64> = (0..nodes).map(|slot| known.trust(slot)).collect();
    Picture::of(&known, NOW).rank().ranking.discounted(|slot| trust[slot])
}

fn five_honest(ranking: &Ranking) -> BTreeSet<usize> {
    let honest = ranking.scores().iter().map(|s| s.relay).filter(|l| *l < HONEST as usize);
    honest.take(5).collect()
}

/// What so many liars can move an honest relay's score by.
fn bound(liars: Slot) -> f64 {
    ROBUST_MOST_GAIN * 2.0 * f64::from(liars) / f64::from(HONEST + liars - 2)
}

fn scores(ranking: &Ranking) -> BTreeMap<usize, f64> {
    let honest = ranking.scores().iter().filter(|s| s.relay < HONEST as usize);
    honest.map(|s| (s.relay, s.score)).collect()
}

/// How many of the five honest relays that are best in truth are others, if all is within
/// the bound.
fn changed(liars: Slot, seed: u64, says: Says) -> usize {
    let (honest, lied) = (ranking(liars, seed, truly), ranking(liars, seed, says));
    let (truth, told) = (scores(&honest), scores(&lied));
    for (relay, score) in &truth {
        let moved = (told[relay] - score).abs();
        assert!(moved <= bound(liars), "{liars} liars, seed {seed}: {relay} moved by {moved}");
    }
    let (best, shown) = (five_honest(&honest), five_honest(&lied));
    for (gone, new) in
        best.difference(&shown).flat_map(|g| shown.difference(&best).map(move |n| (g, n)))
    {
        let apart = truth[gone] - truth[new];
        assert!(apart <= 2.0 * bound(liars), "seed {seed}: {new} in the place of {gone}");
    }
    best.difference(&shown).count()
}

#[test]
fn one_liar_that_boasts_changes_nothing_since_the_other_end_is_believed() {
    for seed in 1..=10 {
        assert_eq!(changed(1, seed, absurdly), 0, "seed {seed}");
        let (honest, lied) = (ranking(1, seed, truly), ranking(1, seed, absurdly));
        let place = |r: &Ranking| r.scores().iter().position(|s| s.relay == HONEST as usize);
        assert!(place(&lied) >= place(&honest), "seed {seed}: the liar rose");
    }
}

#[test]
fn liars_in_league_move_the_five_best_within_the_bound() {
    let all = (1..=3).flat_map(|k| (1..=10).map(move |seed| (k, seed)));
    let changes = all.map(|(k, seed)| changed(k, seed, in_league) + changed(k, seed, absurdly));
    assert!(changes.sum::<usize>() > 0, "no lie had any effect: the test shows nothing");
}
