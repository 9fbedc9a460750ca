//! Runs one schedule on one set of detours, from no measurement to all.

use super::{
    super::RoundTrips,
    Arm, PARTS,
    workload::{self, Workload},
};
use crate::{
    input::{Input, Roles},
    matrix::Matrix,
    random::Stream,
};
use thalweg_plan::{
    Graph,
    ranking::Incremental,
    schedule::{ExcludedLegs, Pair, ScheduleInput},
};
use thalweg_units::Rate;

/// The gain after each part of all measurements, and their cost until then.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Curve {
    /// The median gain, %.
    pub(super) gain: Vec<f64>,
    /// Tests that the schedule asked for, in % of all paths.
    pub(super) tests: Vec<f64>,
    /// GB that tests and passive samples moved.
    pub(super) gigabytes: Vec<f64>,
}

impl Curve {
    /// The mean of several curves.
    pub(super) fn mean(curves: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> &Vec<f64>| {
            let at = |at: usize| curves.iter().map(|c| of(c)[at]).sum::<f64>();
            (0..=PARTS).map(|part| at(part) / curves.len() as f64).collect()
        };
        Self {
            gain: mean(|c| &c.gain),
            tests: mean(|c| &c.tests),
            gigabytes: mean(|c| &c.gigabytes),
        }
    }
}

/// The gain after each part of the measurements; a schedule that ends early keeps its last.
pub(super) fn curve(
    input: &Input,
    roles: &Roles,
    arm: &Arm,
    seed: u64,
    random: &mut Stream,
) -> Curve {
    let mut run = ScheduleRun::new(input, roles, arm);
    let mut schedule = (arm.schedule)();
    let mut workload = arm.is_passive.then(|| Workload::new(roles.detours.len(), seed));
    let excluded = run.unreachable();
    run.add_point(random);
    while run.curve.gain.len() <= PARTS {
        let graph = run.known.graph();
        let now = ScheduleInput {
            graph,
            excluded: &excluded,
            age_s: None,
            rtt_s: Some(&run.rtt),
            ranges: None,
        };
        let wanted = schedule.next(&now, random);
        if wanted.is_empty() {
            break;
        }
        for pair in wanted {
            run.test(pair, random);
            for _ in 0..workload::DOWNLOADS {
                let taken = workload.as_mut().and_then(Workload::next);
                taken.into_iter().for_each(|pair| run.overhear(pair, random));
            }
        }
    }
    while run.curve.gain.len() <= PARTS {
        run.add_point(random);
    }
    run.curve
}

struct ScheduleRun<'a> {
    input: &'a Input,
    roles: &'a Roles,
    arm: &'a Arm,
    rates: Matrix,
    rtt: RoundTrips,
    known: Incremental,
    tests: usize,
    megabytes: f64,
    curve: Curve,
}

impl<'a> ScheduleRun<'a> {
    fn new(input: &'a Input, roles: &'a Roles, arm: &'a Arm) -> Self {
        Self {
            input,
            roles,
            arm,
            rates: input.planned.restricted_to(&roles.detours),
            rtt: RoundTrips(input.world.rtt.restricted_to(&roles.detours)),
            known: Incremental::new(Graph::new(roles.detours.len())),
            tests: 0,
            megabytes: 0.0,
            curve: Curve::default(),
        }
    }

    /// The paths that were never measured.
    fn unreachable(&self) -> ExcludedLegs {
        let nodes: Vec<usize> = (0..self.roles.detours.len()).collect();
        let unknown = |&(i, j): &Pair| self.rates.get(i, j).is_none();
        ExcludedLegs {
            pairs: super::pairs(&nodes).filter(unknown).collect(),
            ..ExcludedLegs::default()
        }
    }

    /// Makes a test of a path for the schedule.
    fn test(&mut self, pair: Pair, random: &mut Stream) {
        self.tests += 1;
        let mbps = self.rates.get(pair.0, pair.1).unwrap_or(0.0);
        // The path may have been sampled by a download before.
        self.megabytes += workload::test_megabytes(mbps);
        self.add_measurement(pair, random);
    }

    /// Takes a download's sample of a path that is not measured yet.
    fn overhear(&mut self, pair: Pair, random: &mut Stream) {
        let Some(mbps) = self.rates.get(pair.0, pair.1) else { return };
        if self.known.graph().rate(pair.0, pair.1).is_none() {
            self.megabytes += workload::sample_megabytes(mbps, &self.input.settings);
            self.add_measurement(pair, random);
        }
    }

    fn add_measurement(&mut self, (i, j): Pair, random: &mut Stream) {
        self.known.set(i, j, self.rates.get(i, j).map(Rate::from_mbps));
        let all = self.rates.known().count();
        let reached = |parts: usize, measured: usize| parts * all <= measured * PARTS;
        while self.curve.gain.len() <= PARTS
            && reached(self.curve.gain.len(), self.known.graph().measured())
        {
            self.add_point(random);
        }
    }

    /// Adds the next point from what is known by now.
    fn add_point(&mut self, random: &mut Stream) {
        let ranking = (self.arm.ranking)(&self.known, &self.rtt);
        self.curve.gain.push(super::gain(self.input, self.roles, &ranking, random));
        let all = self.rates.known().count();
        self.curve.tests.push(100.0 * self.tests as f64 / all as f64);
        self.curve.gigabytes.push(self.megabytes / 1000.0);
    }
}
