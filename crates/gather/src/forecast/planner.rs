//! Makes the plan from the estimates.

use super::{Forecast, ForecastError, ForecastInput, Plan, PlannedPath, PricePoint};
use crate::{Method, MethodName, PriceList};
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::collection::{
    CurvePoint, Fluid, Grid, HostLimits, PlanError, PriceError, Problem, ProblemError, Rule,
    Timetable,
};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::Name;

/// The maximum number of data units in a fluid plan. Up to this the unit is a byte; larger amounts use a larger unit.
const FLUID_UNITS: u64 = 1 << 45;

/// The relative error that rounding to units can cause in a price.
const ROUNDING: f64 = 1e-3;

impl ForecastInput<'_> {
    /// Makes the plan. Takes seconds for large meshes, so it must not run on threads that move data.
    ///
    /// # Errors
    ///
    /// [`ForecastError`]: of methods with a timetable, and of prices.
    pub fn plan(&self) -> Result<Plan, ForecastError> {
        let mut plan = self.fluid()?;
        plan.forecast.method = MethodName::of(self.method).to_string();
        match self.method {
            Method::Fluid => {}
            Method::Scheduled(rule) => self.timetable(&mut plan, rule)?,
            Method::BestPath => self.best_paths(&mut plan)?,
            Method::Direct(direct) => self.direct(&mut plan, direct),
        }
        self.price(&mut plan)?;
        Ok(plan)
    }

    /// Makes the fluid plan (T* and its paths). Sources without a measured path are listed and left out.
    fn fluid(&self) -> Result<Plan, ForecastError> {
        let bytes: ByteSize = self.amounts.iter().copied().sum();
        let grid = self.fluid_grid();
        let unit = grid.unit;
        let mut amounts = self.amounts.to_vec();
        let mut unmeasured = Vec::new();
        let fluid = loop {
            match self.rates(&self.problem(grid, &amounts)?, unit) {
                Ok(fluid) => break fluid,
                Err(PriceError::Plan(PlanError::NoPath(host))) => {
                    unmeasured.push(self.name(host));
                    amounts[host as usize] = ByteSize::ZERO;
                }
                Err(other) => return Err(self.price_error(other)),
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

    /// The fastest fluid plan within the budget.
    fn rates(&self, problem: &Problem, unit: ByteSize) -> Result<Fluid, PriceError> {
        match self.prices.zip(self.budget) {
            Some((list, budget)) => {
                let prices = list.of(problem, self.overlay, unit);
                problem.fluid_for(budget, &prices).map(|priced| priced.plan)
            }
            None => problem.fluid().map_err(PriceError::Plan),
        }
    }

    /// Adds the price of the plan's paths and the price curve; an error if the price exceeds the budget.
    fn price(&self, plan: &mut Plan) -> Result<(), ForecastError> {
        let Some(list) = self.prices else { return Ok(()) };
        let index = |name: &Name| self.overlay.names.iter().position(|n| n == name);
        let leg = |from: &Name, to: &Name, bytes| {
            let ends = index(from).zip(index(to));
            ends.map_or(0.0, |(u, v)| list.of_leg(self.overlay, u as u32, v as u32, bytes))
        };
        let here = self.name(self.overlay.destination());
        let path = |path: &PlannedPath| {
            let from = std::iter::once(&path.source).chain(&path.via);
            let to = path.via.iter().chain(std::iter::once(&here));
            let bytes = ByteSize::from_bytes(path.bytes);
            from.zip(to).map(|(from, to)| leg(from, to, bytes)).sum::<f64>()
        };
        let price = plan.forecast.paths.iter().map(path).sum();
        plan.forecast.price = Some(price);
        plan.forecast.curve = self.curve(list, &plan.forecast.unmeasured)?;
        match self.budget.filter(|budget| price > budget * (1.0 + ROUNDING)) {
            Some(budget) => {
                let what = format!("`--method {}`", plan.forecast.method);
                Err(ForecastError::OverBudget { budget, what, least: price })
            }
            None => Ok(()),
        }
    }

    /// The time–price curve of fluid plans; empty if a source has no measured path.
    fn curve(
        &self,
        list: &PriceList,
        unmeasured: &[Name],
    ) -> Result<Vec<PricePoint>, ForecastError> {
        if !unmeasured.is_empty() {
            return Ok(Vec::new());
        }
        let grid = self.fluid_grid();
        let problem = self.problem(grid, self.amounts)?;
        let prices = list.of(&problem, self.overlay, grid.unit);
        let curve = problem.fluid_curve(&prices).map_err(|e| self.price_error(e))?;
        let seconds = |slots: f64| slots * grid.slot.as_secs_f64();
        let point =
            |offer: &CurvePoint| PricePoint { seconds: seconds(offer.slots), price: offer.price };
        Ok(curve.iter().map(point).collect())
    }

    /// The grid of fluid plans: slots of a second and units of a byte, or larger units for large amounts.
    fn fluid_grid(&self) -> Grid {
        let bytes: ByteSize = self.amounts.iter().copied().sum();
        let unit = ByteSize::from_bytes((bytes.as_bytes() / FLUID_UNITS).max(1));
        Grid { slot: Duration::from_secs(1), unit }
    }

    fn timetable(&self, plan: &mut Plan, rule: Rule) -> Result<(), ForecastError> {
        let problem = self.problem(self.grid, self.amounts)?;
        let timetable = match self.prices.zip(self.budget) {
            Some((list, budget)) => {
                let prices = list.of(&problem, self.overlay, self.grid.unit);
                problem.timetable_for(budget, &prices).map(|priced| priced.plan)
            }
            None => problem.timetable().map_err(PriceError::Plan),
        };
        let timetable = timetable.map_err(|e| self.price_error(e))?;
        self.take_timetable(&mut plan.forecast, &timetable);
        if let Rule::Delay(slot) = rule {
            // Sources follow this clock instead of the plan's.
            let seconds = slot.as_secs_f64() * f64::from(timetable.slots);
            plan.forecast.makespan_seconds = Some(seconds);
        }
        plan.timetable = Some(timetable);
        Ok(())
    }

    /// Paths that share a leg share its rate, so the leg with the most slots of data to carry determines the makespan.
    fn best_paths(&self, plan: &mut Plan) -> Result<(), ForecastError> {
        let problem = self.problem(self.grid, self.amounts)?;
        let paths = problem.best_paths().map_err(|e| self.planner_error(e))?;
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

    /// The seconds that the ingress limit alone requires.
    pub(super) fn least(&self) -> f64 {
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
        Ok(problem.with_limits(here, HostLimits { ingress, ..HostLimits::default() }))
    }

    pub(super) fn name(&self, host: u32) -> Name {
        self.overlay.names[host as usize].clone()
    }

    fn between(&self, via: &[u32]) -> Vec<Name> {
        via.iter().take(via.len().saturating_sub(1)).map(|host| self.name(*host)).collect()
    }

    fn planner_error(&self, error: PlanError) -> ForecastError {
        match error {
            PlanError::NoPath(host) => ForecastError::NoPath(self.name(host)),
            other => ForecastError::Plan(other),
        }
    }

    fn price_error(&self, error: PriceError) -> ForecastError {
        match (error, self.budget) {
            (PriceError::Plan(error), _) => self.planner_error(error),
            (PriceError::OverBudget { least }, Some(budget)) => {
                ForecastError::OverBudget { budget, what: "the cheapest plan".to_owned(), least }
            }
            (other, _) => ForecastError::Price(other.to_string()),
        }
    }
}
