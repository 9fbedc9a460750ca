//! What a collection is expected to take, before it begins.

use super::{Method, Overlay};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::collection::{
    Direct, Fluid, Grid, Limits, PlanError, Problem, ProblemError, Rule, Timetable,
};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::Name;
use thiserror::Error;

/// The plan of rates is made in bytes and seconds, and in larger units if bytes are too many.
const FLUID_UNITS: u64 = 1 << 45;

/// What is planned with.
#[derive(Clone, Copy, Debug)]
pub struct Outset<'a> {
    /// Who takes part, and what is known of the legs.
    pub overlay: &'a Overlay,
    /// Bytes that are missing, by participant.
    pub amounts: &'a [ByteSize],
    /// How it is carried out.
    pub method: Method,
    /// Slot and unit of a timetable.
    pub grid: Grid,
    /// The most that this end takes.
    pub limit: Option<Rate>,
}

/// What a collection is expected to take.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Forecast {
    /// The method's name, as options write it.
    pub method: String,
    /// From the first byte asked for to the last one here; absent: some source has no measured
    /// way, so that nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub makespan_seconds: Option<f64>,
    /// No schedule over the measured legs is shorter: T* of the fluid plan. Absent as above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_seconds: Option<f64>,
    /// Bytes that are to come.
    pub bytes: u64,
    /// T of a timetable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Its slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_seconds: Option<f64>,
    /// Its data unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_bytes: Option<u64>,
    /// Sources that no measured way leads from; their data is in no path below.
    pub unmeasured: Vec<Name>,
    /// Which data goes which way.
    pub paths: Vec<PlannedPath>,
}

/// Data of one source that goes one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedPath {
    /// The source.
    pub source: Name,
    /// The hosts between it and here, nearest to the source first.
    pub via: Vec<Name>,
    /// How much.
    pub bytes: u64,
    /// On average over the whole makespan; absent: unmeasured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// In how many transfers of each leg; absent: it flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<u64>,
}

/// A forecast and the plan that it is of.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// For people and programs.
    pub forecast: Forecast,
    /// The rates; of the sources that have a measured way.
    pub fluid: Option<Fluid>,
    /// The timetable, if the method has one.
    pub timetable: Option<Timetable>,
}

/// There is no such plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ForecastError {
    /// A timetable needs rates.
    #[error(
        "no measured way leads from `{0}` to this host, or it takes less than a data unit a slot: \
         `--method fluid` works without rates, `--rates FILE` gives some"
    )]
    NoWay(Name),
    /// The planner's.
    #[error("{0}")]
    Plan(PlanError),
    /// The planner's.
    #[error(transparent)]
    Problem(#[from] ProblemError),
}

impl Outset<'_> {
    /// The plan. Takes seconds for large meshes: not for threads that move data.
    ///
    /// # Errors
    ///
    /// [`ForecastError`], for methods with a timetable alone.
    pub fn plan(&self) -> Result<Plan, ForecastError> {
        let mut plan = self.fluid()?;
        plan.forecast.method = super::MethodName::of(self.method).to_string();
        match self.method {
            Method::Fluid => {}
            Method::Scheduled(rule) => self.timetable(&mut plan, rule)?,
            Method::BestPath => self.best_paths(&mut plan)?,
            Method::Direct(direct) => self.direct(&mut plan, direct),
        }
        Ok(plan)
    }

    /// T* and its paths; sources without a measured way are named and left out.
    fn fluid(&self) -> Result<Plan, ForecastError> {
        let bytes: ByteSize = self.amounts.iter().copied().sum();
        let unit = ByteSize::from_bytes((bytes.as_bytes() / FLUID_UNITS).max(1));
        let grid = Grid { slot: Duration::from_secs(1), unit };
        let mut amounts = self.amounts.to_vec();
        let mut unmeasured = Vec::new();
        let fluid = loop {
            match self.problem(grid, &amounts)?.fluid() {
                Ok(fluid) => break fluid,
                Err(PlanError::NoPath(host)) => {
                    unmeasured.push(self.name(host));
                    amounts[host as usize] = ByteSize::ZERO;
                }
                Err(other) => return Err(ForecastError::Plan(other)),
            }
        };
        let path = |path: &thalweg_plan::collection::RatedPath| {
            let per_second = path.per_slot * unit.as_bytes() as f64;
            PlannedPath {
                source: self.name(path.source),
                via: self.between(&path.via),
                bytes: (per_second * fluid.slots).round() as u64,
                rate_bps: Some((per_second * 8.0) as u64),
                transfers: None,
            }
        };
        let known = unmeasured.is_empty().then_some(fluid.slots);
        let forecast = Forecast {
            makespan_seconds: known,
            bound_seconds: known,
            bytes: bytes.as_bytes(),
            unmeasured,
            paths: fluid.paths.iter().map(path).collect(),
            ..Forecast::default()
        };
        Ok(Plan { forecast, fluid: Some(fluid), timetable: None })
    }

    fn timetable(&self, plan: &mut Plan, rule: Rule) -> Result<(), ForecastError> {
        let problem = self.problem(self.grid, self.amounts)?;
        let timetable = problem.timetable().map_err(|e| self.told(e))?;
        self.take_timetable(&mut plan.forecast, &timetable);
        if let Rule::Delay(slot) = rule {
            // Sources hold to this clock instead of the plan's.
            let seconds = slot.as_secs_f64() * f64::from(timetable.slots);
            plan.forecast.makespan_seconds = Some(seconds);
        }
        plan.timetable = Some(timetable);
        Ok(())
    }

    /// Paths that share a leg share its rate: the leg with most to carry says when all is there.
    fn best_paths(&self, plan: &mut Plan) -> Result<(), ForecastError> {
        let problem = self.problem(self.grid, self.amounts)?;
        let paths = problem.best_paths().map_err(|e| self.told(e))?;
        let units: Vec<u64> =
            paths.iter().map(|p| self.grid.units(self.amounts[p.source as usize])).collect();
        let timetable = Timetable::of_best_paths(&paths, &units);
        self.take_timetable(&mut plan.forecast, &timetable);
        let mut carried: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for (path, units) in paths.iter().zip(&units) {
            let from = std::iter::once(path.source).chain(path.via.iter().copied());
            from.zip(&path.via).for_each(|(u, v)| *carried.entry((u, *v)).or_default() += units);
        }
        let full = |leg: &thalweg_plan::collection::Leg| {
            Some(*carried.get(&(leg.from, leg.to))? as f64 / leg.per_slot as f64)
        };
        let slots = problem.legs().iter().filter_map(full).fold(0.0, f64::max);
        let last_hops = paths.iter().map(|path| path.via.len() - 1).max().unwrap_or(0);
        let seconds = (slots + last_hops as f64) * self.grid.slot.as_secs_f64();
        plan.forecast.slots = None;
        plan.forecast.makespan_seconds = Some(seconds.max(self.least()));
        plan.timetable = Some(timetable);
        Ok(())
    }

    /// Each source alone on its leg to this host; the limit is all of theirs.
    fn direct(&self, plan: &mut Plan, direct: Direct) {
        let here = self.overlay.destination();
        let with_data: Vec<u32> = (0..here)
            .filter(|host| self.amounts.get(*host as usize).is_some_and(|a| a.as_bytes() > 0))
            .collect();
        let rate = |host: u32| self.overlay.rates.rate(host as usize, here as usize);
        let amount = |host: u32| self.amounts[host as usize];
        let path = |host: &u32| PlannedPath {
            source: self.name(*host),
            via: Vec::new(),
            bytes: amount(*host).as_bytes(),
            rate_bps: rate(*host).map(Rate::as_bps),
            transfers: None,
        };
        plan.forecast.paths = with_data.iter().map(path).collect();
        let unmeasured = with_data.iter().filter(|host| rate(**host).is_none());
        plan.forecast.unmeasured = unmeasured.map(|host| self.name(*host)).collect();
        let time = |host: &u32| Some(rate(*host)?.time_for(amount(*host)).as_secs_f64());
        let times: Option<Vec<f64>> = with_data.iter().map(time).collect();
        let alone = times.map(|times| direct_makespan(direct, &times).max(self.least()));
        plan.forecast.makespan_seconds = alone;
    }

    /// How long the limit alone makes it, in seconds.
    fn least(&self) -> f64 {
        let all: ByteSize = self.amounts.iter().copied().sum();
        self.limit.map_or(0.0, |limit| limit.time_for(all).as_secs_f64())
    }

    fn take_timetable(&self, forecast: &mut Forecast, timetable: &Timetable) {
        let seconds = self.grid.slot.as_secs_f64() * f64::from(timetable.slots);
        forecast.makespan_seconds = Some(seconds);
        forecast.slots = Some(timetable.slots);
        forecast.slot_seconds = Some(self.grid.slot.as_secs_f64());
        forecast.unit_bytes = Some(self.grid.unit.as_bytes());
        forecast.unmeasured.clear();
        let mut ways: BTreeMap<(u32, &[u32]), (u64, u64)> = BTreeMap::new();
        for path in &timetable.paths {
            let (units, transfers) = ways.entry((path.source, &path.via)).or_default();
            *units += path.units;
            *transfers += 1;
        }
        let path = |((source, via), (units, transfers)): ((u32, &[u32]), (u64, u64))| {
            // The last unit is not full.
            let bytes =
                (units * self.grid.unit.as_bytes()).min(self.amounts[source as usize].as_bytes());
            PlannedPath {
                source: self.name(source),
                via: self.between(via),
                bytes,
                rate_bps: Some((bytes as f64 * 8.0 / seconds) as u64),
                transfers: Some(transfers),
            }
        };
        forecast.paths = ways.into_iter().map(path).collect();
    }

    fn problem(&self, grid: Grid, amounts: &[ByteSize]) -> Result<Problem, ProblemError> {
        let here = self.overlay.destination();
        let problem = grid.collect(&self.overlay.rates, amounts, here)?;
        let ingress = self.limit.map(|limit| grid.units_per_slot(limit).max(1));
        Ok(problem.with_limits(here, Limits { ingress, ..Limits::default() }))
    }

    fn name(&self, host: u32) -> Name {
        self.overlay.names[host as usize].clone()
    }

    fn between(&self, via: &[u32]) -> Vec<Name> {
        via.iter().take(via.len().saturating_sub(1)).map(|host| self.name(*host)).collect()
    }

    fn told(&self, error: PlanError) -> ForecastError {
        match error {
            PlanError::NoPath(host) => ForecastError::NoWay(self.name(host)),
            other => ForecastError::Plan(other),
        }
    }
}

/// When the last of `times` is over, each a source's alone, none in the way of another.
fn direct_makespan(direct: Direct, times: &[f64]) -> f64 {
    let last = |ends: &[f64]| ends.iter().copied().fold(0.0, f64::max);
    match direct {
        Direct::AllAtOnce => last(times),
        Direct::OneByOne => times.iter().sum(),
        Direct::SpreadInTime { group, slot } => {
            let begins = |at: usize| (at / group.max(1)) as f64 * slot.as_secs_f64();
            last(&times.iter().enumerate().map(|(at, time)| begins(at) + time).collect::<Vec<_>>())
        }
        Direct::Concurrent(group) => {
            let mut places = vec![0.0; group.max(1)];
            for time in times {
                // The one that is free first takes the next.
                places.sort_by(f64::total_cmp);
                places[0] += time;
            }
            last(&places)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_plan::Graph;

    /// The paper's Figure 1, as rates in Mbit/s: S1, S2 and S3 and, last, D.
    fn overlay(rates: [[f64; 4]; 4]) -> Overlay {
        let rate = |mbps: f64| (mbps > 0.0).then(|| Rate::from_mbps(mbps));
        let rows: Vec<Vec<_>> = rates.iter().map(|row| row.map(rate).to_vec()).collect();
        let names = ["s1", "s2", "s3", "d"].map(|n| n.parse().unwrap()).to_vec();
        let rates = Graph::from_matrix(&rows);
        Overlay { names, sources: 3, rates, rtts: BTreeMap::new() }
    }

    /// s3 is slow to d and fast to s1, which is fast to d.
    const RATES: [[f64; 4]; 4] =
        [[0.0, 0.0, 0.0, 80.0], [0.0, 0.0, 0.0, 8.0], [80.0, 0.0, 0.0, 8.0], [0.0; 4]];

    fn plan(
        rates: [[f64; 4]; 4],
        method: Method,
        limit: Option<f64>,
    ) -> Result<Plan, ForecastError> {
        let overlay = overlay(rates);
        let amounts = [10, 10, 50, 0].map(|mb| ByteSize::from_bytes(mb * 1_000_000));
        let grid = Grid { slot: Duration::from_millis(500), unit: ByteSize::from_bytes(10_000) };
        let limit = limit.map(Rate::from_mbps);
        Outset { overlay: &overlay, amounts: &amounts, method, grid, limit }.plan()
    }

    #[test]
    fn the_fluid_plan_is_its_own_bound_and_its_paths_carry_all() {
        let plan = plan(RATES, Method::Fluid, None).unwrap();
        // s2 needs 10 s alone; s1's and s3's 60 MB come over 88 Mbit/s in 5.5 s.
        assert!((plan.forecast.makespan_seconds.unwrap() - 10.0).abs() < 0.01);
        assert_eq!(plan.forecast.bound_seconds, plan.forecast.makespan_seconds);
        let carried: u64 = plan.forecast.paths.iter().map(|p| p.bytes).sum();
        assert!(carried.abs_diff(70_000_000) < 100, "{carried}");
        assert!(plan.forecast.paths.iter().any(|p| p.via == ["s1".parse().unwrap()]));
    }

    #[test]
    fn every_method_is_at_least_the_bound_and_names_itself() {
        let seconds = Duration::from_secs;
        for (method, name, expected) in [
            (Method::Fluid, "fluid", 10.0..10.1),
            (Method::PATH_SYNC_95, "path-sync=95", 10.0..11.1),
            (Method::BestPath, "best-path", 10.0..12.0),
            (Method::Direct(Direct::AllAtOnce), "all-at-once", 49.9..50.1),
            (Method::Direct(Direct::OneByOne), "one-by-one", 60.9..61.1),
            (Method::Direct(Direct::Concurrent(2)), "concurrent=2", 50.9..51.1),
            (
                Method::Direct(Direct::SpreadInTime { group: 1, slot: seconds(7) }),
                "spread-in-time=1,7s",
                63.9..64.1,
            ),
        ] {
            let forecast = plan(RATES, method, None).unwrap().forecast;
            assert_eq!(forecast.method, name);
            let took = forecast.makespan_seconds.unwrap();
            assert!(expected.contains(&took), "{name}: {took}");
            assert!(took >= forecast.bound_seconds.unwrap() - 1e-6, "{name}");
            let carried: u64 = forecast.paths.iter().map(|p| p.bytes).sum();
            assert!(carried.abs_diff(70_000_000) < 100, "{name}: {carried}");
        }
    }

    #[test]
    fn the_limit_of_this_end_counts() {
        for method in [Method::Fluid, Method::PATH_SYNC_95, Method::BestPath] {
            let forecast = plan(RATES, method, Some(20.0)).unwrap().forecast;
            assert!(forecast.makespan_seconds.unwrap() >= 27.9, "{forecast:?}");
        }
        let forecast = plan(RATES, Method::Direct(Direct::AllAtOnce), Some(1.0)).unwrap().forecast;
        assert!((forecast.makespan_seconds.unwrap() - 560.0).abs() < 0.1, "{forecast:?}");
    }

    #[test]
    fn what_is_not_measured_is_said_and_stops_only_timetables() {
        let mut rates = RATES;
        rates[1] = [0.0; 4];
        let forecast = plan(rates, Method::Fluid, None).unwrap().forecast;
        assert_eq!(forecast.unmeasured, ["s2".parse().unwrap()]);
        assert_eq!((forecast.makespan_seconds, forecast.bound_seconds), (None, None));
        assert!(!forecast.paths.is_empty(), "the others are planned");
        let forecast = plan(rates, Method::Direct(Direct::OneByOne), None).unwrap().forecast;
        assert_eq!(forecast.makespan_seconds, None);
        let refused = plan(rates, Method::PATH_SYNC_95, None).unwrap_err();
        assert_eq!(refused, ForecastError::NoWay("s2".parse().unwrap()));
        assert!(plan(rates, Method::BestPath, None).is_err());
    }
}
