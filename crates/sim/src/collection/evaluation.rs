//! Figures 5, 6 and 7: all methods under one background.

use super::{
    background::{Background, Ratio},
    bound,
    fluid::FluidMethod,
    methods::{DirectMethod, Method, MethodKind, TimetableMethod},
    run::{CollectionOutcome, Scenario},
    topology::{self, Topology},
};
use crate::{figures::Report, matrix::Matrix, random};
use std::time::Duration;
use thalweg_plan::{
    Graph,
    collection::{
        Direct, Grid, HostLimits, PlanError, Problem, ProblemError, Rule, Timetable, steering,
    },
};
use thalweg_units::{ByteSize, Rate};

/// The longest measurement of a pair, s.
const LONGEST_MEASUREMENT: f64 = 200.0;

/// The capacity of a stub domain's links, and so of a host's access, bit/s.
const ACCESS: u64 = 2_500_000;

/// The least background throughput that the paper's methods leave, % (§VI).
const MILD: f64 = 84.0;

/// Mbit in a byte.
const MBIT: f64 = 8e-6;

/// The settings of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Background flows; the paper has 0, 24, 72 and 120.
    pub flows: u32,
    /// How they divide over the two peering points; the paper's headline is 1:3.
    pub ratio: Ratio,
    /// All data, bytes; the paper has 350 MB.
    pub bytes: f64,
    /// The plan's steps; the paper has 8 s and 64 KiB.
    pub grid: Grid,
    /// Capacities are multiplied by up to this much up or down before planning; 0 leaves them as measured.
    pub wrong_by: f64,
    /// Legs lead at most this many hosts further in the hosts' order, which makes paths longer. `None`: all pairs, as
    /// in the paper.
    pub reach: Option<usize>,
    /// Whether the plan knows that all legs to the destination share its access. The paper's does not: G_H has a
    /// capacity for each pair, measured alone.
    pub access_known: bool,
}

impl Settings {
    /// The paper's settings, with this many background flows.
    pub const fn paper(flows: u32) -> Self {
        Self {
            flows,
            ratio: (1, 3),
            bytes: 350e6,
            grid: Grid::PAPER,
            wrong_by: 0.0,
            reach: None,
            access_known: false,
        }
    }
}

/// One network, its capacities measured under its background.
#[derive(Clone, Debug)]
pub struct Evaluation {
    settings: Settings,
    seed: u64,
    scenario: Scenario,
    /// Bytes by host; the destination, last, has none.
    amounts: Vec<f64>,
    /// What was measured, with errors if requested.
    estimates: Graph,
    problem: Problem,
    timetable: Timetable,
    /// Mean rate of a background FTP without any collection, Mbit/s.
    undisturbed: f64,
}

/// Why there is no plan: the network of this seed is too slow for the grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The problem cannot be stated.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The problem cannot be solved.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Evaluation {
    /// Measures all pairs ("sending a 5 MByte file …, 10 times", 200 s at most) and plans.
    ///
    /// # Errors
    ///
    /// [`EvaluationError`].
    pub fn new(seed: u64, settings: Settings) -> Result<Self, EvaluationError> {
        let net = Topology::transit_stub(seed);
        let hosts = topology::bistros(&net, seed);
        let background = Background::new(&net, seed, settings.flows, settings.ratio);
        let scenario = Scenario { net, hosts, background };
        let amounts = draw_amounts(seed, scenario.hosts.len(), settings.bytes);
        let rates = measure_capacities(&scenario, seed, &settings);
        let units: Vec<ByteSize> =
            amounts.iter().map(|bytes| ByteSize::from_bytes(*bytes as u64)).collect();
        let destination = scenario.hosts.len() as u32 - 1;
        let estimates = rates.graph();
        let mut problem = settings.grid.collect(&estimates, &units, destination)?;
        if settings.access_known {
            let ingress = Some(settings.grid.units_per_slot(Rate::from_bps(ACCESS)));
            problem =
                problem.with_limits(destination, HostLimits { ingress, ..HostLimits::default() });
        }
        let timetable = problem.timetable()?;
        let seconds = f64::from(timetable.slots) * settings.grid.slot.as_secs_f64();
        let undisturbed = scenario.undisturbed_rate(seconds);
        Ok(Self { settings, seed, scenario, amounts, estimates, problem, timetable, undisturbed })
    }

    /// T, the plan's makespan, s.
    pub fn planned_makespan(&self) -> f64 {
        f64::from(self.timetable.slots) * self.settings.grid.slot.as_secs_f64()
    }

    /// Carries out a method.
    ///
    /// # Errors
    ///
    /// [`EvaluationError`] if the method has no plan.
    pub fn run(&self, kind: MethodKind) -> Result<CollectionOutcome, EvaluationError> {
        let unit = self.settings.grid.unit.as_bytes() as f64 * MBIT;
        let scheduled = |timetable: &Timetable, rule| -> Box<dyn Method> {
            Box::new(TimetableMethod::new(timetable, rule, unit))
        };
        let directly = |direct, over| -> Box<dyn Method> {
            let mbit = self.amounts.iter().map(|bytes| bytes * MBIT).collect();
            Box::new(DirectMethod::new(direct, mbit, over, random::stream(self.seed, "direct", 0)))
        };
        let mut method = match kind {
            MethodKind::PathSync(share) => scheduled(&self.timetable, Rule::Sync(share)),
            MethodKind::PathDelay => {
                scheduled(&self.timetable, Rule::Delay(self.settings.grid.slot))
            }
            MethodKind::BestPath => scheduled(&self.best_paths()?, Rule::Chain),
            MethodKind::Direct(direct) => directly(direct, 1),
            MethodKind::AllAtOnceOver(over) => directly(Direct::AllAtOnce, over),
            MethodKind::Fluid(ways) => {
                let settings = steering::Settings { ways, ..steering::Settings::default() };
                Box::new(FluidMethod::new(settings, &self.amounts, &self.estimates))
            }
        };
        Ok(self.scenario.run(method.as_mut()))
    }

    fn best_paths(&self) -> Result<Timetable, PlanError> {
        let units: Vec<u64> = self
            .amounts
            .iter()
            .map(|bytes| self.settings.grid.units(ByteSize::from_bytes(*bytes as u64)))
            .collect();
        Ok(Timetable::of_best_paths(&self.problem.best_paths()?, &units))
    }

    /// The most of others' data that each source held in a run, in % of its own data: the mean over sources (Fig. 6).
    pub fn storage(&self, outcome: &CollectionOutcome) -> f64 {
        let sources = self.amounts.len() - 1;
        let held = |host: usize| outcome.storage.get(&host).copied().unwrap_or(0.0);
        let share = |host: usize| held(host) / (self.amounts[host] * MBIT);
        (0..sources).map(share).sum::<f64>() * 100.0 / sources as f64
    }

    /// The least makespan that any method could have had in a run: see [`super::shortest`], s.
    pub fn bound(&self, outcome: &CollectionOutcome) -> f64 {
        let mbit: Vec<f64> = self.amounts.iter().map(|bytes| bytes * MBIT).collect();
        bound::bound_of_run(&self.scenario.net, &self.scenario.hosts, &mbit, &outcome.record)
    }

    /// Background throughput in a run, in % of the undisturbed (Fig. 7).
    pub fn background(&self, outcome: &CollectionOutcome) -> f64 {
        100.0 * outcome.background / self.undisturbed
    }
}

/// Bytes of each host: "uniformly distributed between 25 and 75 MBytes with an additional constraint that the total …
/// is 350 MBytes"; other totals in proportion. The last host has none.
pub fn draw_amounts(seed: u64, hosts: usize, total: f64) -> Vec<f64> {
    let mut random = random::stream(seed, "amounts", 0);
    let sources = hosts - 1;
    loop {
        let mut drawn: Vec<f64> = (0..sources).map(|_| 0.5 + random::unit(&mut random)).collect();
        let sum: f64 = drawn.iter().sum();
        drawn.iter_mut().for_each(|amount| *amount *= sources as f64 / sum);
        if drawn.iter().all(|amount| (0.5..=1.5).contains(amount)) {
            drawn.iter_mut().for_each(|amount| *amount *= total / sources as f64);
            drawn.push(0.0);
            return drawn;
        }
    }
}

/// c′ of all pairs with a leg, Mbit/s, with errors of up to `wrong_by`.
fn measure_capacities(scenario: &Scenario, seed: u64, settings: &Settings) -> Matrix {
    let mut random = random::stream(seed, "wrong", 0);
    let destination = scenario.hosts.len() - 1;
    // The hosts in a row that ends at the destination.
    let place = |host: usize| (host + 1) % (destination + 1);
    Matrix::from_fn(scenario.hosts.len(), |from, to| {
        let far = settings.reach.is_some_and(|reach| place(from).abs_diff(place(to)) > reach);
        if from == to || from == destination || far {
            return None;
        }
        let factor = 1.0 + settings.wrong_by * (2.0 * random::unit(&mut random) - 1.0);
        Some(scenario.measure_rate(from, to, 5e6 * MBIT, 10, LONGEST_MEASUREMENT) * factor)
    })
}

/// The direct methods of Fig. 5(a), with names. The paper does not give groups and slots: we take groups of 3 (about
/// half), and slots of a third of the makespan without background (1,120 s with 350 MB).
fn direct_methods(evaluation: &Evaluation) -> [(&'static str, MethodKind); 4] {
    let slot = Duration::from_secs_f64(evaluation.settings.bytes * 8.0 / ACCESS as f64 / 3.0);
    [
        ("all_at_once", MethodKind::Direct(Direct::AllAtOnce)),
        ("one_by_one", MethodKind::Direct(Direct::OneByOne)),
        ("spread_in_time", MethodKind::Direct(Direct::SpreadInTime { group: 3, slot })),
        ("concurrent", MethodKind::Direct(Direct::Concurrent(3))),
    ]
}

/// Runs all methods under one background: makespans and their bounds in s, background throughput in %, storage in %.
/// `only` lists methods by name; if it is empty, all are run.
///
/// # Errors
///
/// [`EvaluationError`].
pub fn figures(seed: u64, settings: Settings, only: &[String]) -> Result<Report, EvaluationError> {
    let evaluation = Evaluation::new(seed, settings)?;
    let coordinated = [
        ("path_sync_100", MethodKind::PathSync(1.0)),
        ("path_sync_95", MethodKind::PathSync(0.95)),
        ("path_delay", MethodKind::PathDelay),
        ("best_path", MethodKind::BestPath),
        ("all_at_once_over_4", MethodKind::AllAtOnceOver(4)),
        ("fluid", MethodKind::Fluid(steering::Settings::default().ways)),
    ];
    let wanted = |name: &str| only.is_empty() || only.iter().any(|other| other == name);
    let methods = direct_methods(&evaluation).into_iter().chain(coordinated);
    let mut report = Report::default();
    report.add("planned", "s", evaluation.planned_makespan());
    for (name, kind) in methods.filter(|(name, _)| wanted(name)) {
        let outcome = evaluation.run(kind)?;
        report.add(name, "s", outcome.makespan);
        report.add(format!("background_{name}"), "%", evaluation.background(&outcome));
        report.add(format!("storage_{name}"), "%", evaluation.storage(&outcome));
        report.add(format!("bound_{name}"), "s", evaluation.bound(&outcome));
    }
    compare(&mut report);
    Ok(report)
}

/// Adds the paper's comparisons, and ours.
fn compare(report: &mut Report) {
    let value = |name: &str| report.value(name).unwrap_or(f64::NAN);
    let coordinated = ["path_sync_95", "path_sync_100", "path_delay"].map(value);
    let best = coordinated.into_iter().fold(f64::NAN, f64::min);
    // The best of the paper's methods among those that took no more from other traffic than the paper says.
    let paper = ["path_sync_95", "path_sync_100", "path_delay", "best_path", "all_at_once"];
    let is_mild = |name: &&str| report.value(&format!("background_{name}")) >= Some(MILD);
    let mild = paper.into_iter().filter(is_mild).map(value).fold(f64::NAN, f64::min);
    let over = [
        ("path_sync_95_over_direct", value("all_at_once") / value("path_sync_95")),
        ("path_sync_95_over_best_path", value("best_path") / value("path_sync_95")),
        ("path_delay_over_path_sync_95", value("path_delay") / value("path_sync_95")),
        ("path_sync_100_over_path_sync_95", value("path_sync_100") / value("path_sync_95")),
        ("path_sync_95_over_planned", value("path_sync_95") / value("planned")),
        ("fluid_over_coordinated", best / value("fluid")),
        ("fluid_over_mild", mild / value("fluid")),
        ("fluid_over_bound", value("fluid") / value("bound_fluid")),
    ];
    over.into_iter().for_each(|(name, times)| report.add(name, "×", times));
}
