//! Tests of repeated measurements.

use crate::world::{rates, run, seeded};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::{
    Graph,
    schedule::{
        Biased, ExcludedLegs, LegAges, Pair, Plan, Random, Schedule, ScheduleInput, Upkeep,
    },
};

const DAY: f64 = 24.0 * 3600.0;
const PERIOD: Duration = Duration::from_secs(14 * 24 * 3600);

/// When each leg was measured, s.
#[derive(Debug, Default)]
struct Ages {
    measured: BTreeMap<Pair, f64>,
    now: f64,
}

impl LegAges for Ages {
    fn age_s(&self, pair: Pair) -> Option<f64> {
        self.measured.get(&pair).map(|at| self.now - at)
    }
}

fn next(
    schedule: &mut dyn Schedule,
    graph: &Graph,
    ages: &Ages,
    excluded: &ExcludedLegs,
) -> Vec<Pair> {
    let known = ScheduleInput { graph, excluded, age_s: Some(ages), rtt_s: None, ranges: None };
    // The first schedule of a plan draws anew each time.
    schedule.next(&known, &mut Xoshiro256PlusPlus::seed_from_u64(ages.now as u64))
}

/// A fully measured mesh, measured over two days.
fn measured(nodes: usize) -> (Graph, Ages) {
    let mut random = seeded(51);
    let rates = rates(nodes, 0.5, &mut random);
    let graph = run(&mut Random::new(1.0), &rates, &ExcludedLegs::default(), 9_999, &mut random);
    let each = 2.0 * DAY / graph.measured() as f64;
    let measured = graph.legs().zip(0_u32..).map(|((pair, _), at)| (pair, f64::from(at) * each));
    let ages = Ages { measured: measured.collect(), now: 2.0 * DAY };
    (graph, ages)
}

#[test]
fn every_leg_is_measured_again_within_the_period_and_those_that_matter_more_often() {
    let (graph, mut ages) = measured(12);
    let mut upkeep = Upkeep::new(PERIOD);
    let mut times: BTreeMap<Pair, u32> = BTreeMap::new();
    for _ in 0..(84 * 24) {
        ages.now += 3600.0;
        // One leg an hour can be measured; 132 legs in 14 days are one in 2.5 hours.
        if let [pair] = next(&mut upkeep, &graph, &ages, &ExcludedLegs::default())[..] {
            ages.measured.insert(pair, ages.now);
            *times.entry(pair).or_default() += 1;
        }
        let oldest = graph.legs().map(|(pair, _)| ages.age_s(pair).unwrap()).fold(0.0, f64::max);
        assert!(oldest < 14.0 * DAY, "a leg is {} days old", oldest / DAY);
    }
    let (least, most) = (times.values().min().unwrap(), times.values().max().unwrap());
    assert_eq!(times.len(), 132);
    assert!(*least >= 6 && *most > least + 2, "in six periods {least} to {most} times");
    let all: u32 = times.values().sum();
    assert!(all < 132 * 6 * 3, "{all} measurements are more than three a leg and period");
}

#[test]
fn young_legs_are_left_alone_and_late_ones_come_oldest_first() {
    let (graph, mut ages) = measured(6);
    let mut upkeep = Upkeep::new(PERIOD);
    ages.measured.values_mut().for_each(|at| *at = 1.9 * DAY);
    assert_eq!(next(&mut upkeep, &graph, &ages, &ExcludedLegs::default()), []);
    ages.now = 13.0 * DAY;
    ages.measured.insert((2, 3), 1.0 * DAY);
    ages.measured.insert((4, 1), 1.5 * DAY);
    assert_eq!(next(&mut upkeep, &graph, &ages, &ExcludedLegs::default()), [(2, 3)]);
    assert_eq!(next(&mut upkeep, &graph, &ages, &ExcludedLegs::default()), [(4, 1)]);
}

#[test]
fn a_leg_is_not_asked_for_again_until_it_was_measured() {
    let (graph, mut ages) = measured(6);
    ages.now = 20.0 * DAY;
    let mut upkeep = Upkeep::new(PERIOD);
    let down = ExcludedLegs { nodes: [5].into(), ..ExcludedLegs::default() };
    let mut asked: Vec<Pair> =
        (0..100).flat_map(|_| next(&mut upkeep, &graph, &ages, &down)).collect();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked.len(), 20, "five nodes' legs, each once");
    assert!(asked.iter().all(|pair| !down.contains(*pair)));
    ages.measured.insert((0, 1), ages.now);
    ages.now += 13.0 * DAY;
    assert_eq!(next(&mut upkeep, &graph, &ages, &down), [(0, 1)]);
}

#[test]
fn a_plan_measures_first_and_keeps_up_from_then_on() {
    let mut random = seeded(52);
    let rates = rates(10, 0.5, &mut random);
    let mut plan = Plan::new(Box::new(Biased::new(25, 0.5)), Upkeep::new(PERIOD));
    let (mut graph, mut ages) = (Graph::new(10), Ages::default());
    let mut again = 0;
    for _ in 0..2_000 {
        ages.now += 1800.0;
        for (i, j) in next(&mut plan, &graph, &ages, &ExcludedLegs::default()) {
            again += u32::from(graph.set(i, j, Some(rates[i][j])).is_some());
            ages.measured.insert((i, j), ages.now);
        }
    }
    assert!((45..=90).contains(&graph.measured()), "{}", graph.measured());
    assert!(again as usize >= 2 * graph.measured(), "{again} in 41 days");
}
