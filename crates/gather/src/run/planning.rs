//! The plan, and what is said of it.

use super::{
    super::{Event, Forecast, ForecastError, Method, MethodName, Outset, Plan, choose_grid},
    GatherError, Request, Run,
};
use std::{sync::Arc, time::Duration};
use thalweg_paths::overlay::Overlay;
use thalweg_plan::collection::Grid;
use thalweg_units::{ByteSize, Rate, format_duration};
use tokio::task::{JoinHandle, spawn_blocking};

impl Run {
    /// The plan; the method, which may need its slots; and slots and unit.
    pub(super) async fn plan(
        &self,
        overlay: Arc<Overlay>,
        amounts: Vec<ByteSize>,
    ) -> Result<(Plan, Method, Grid), GatherError> {
        let (slot, unit) = (self.request.slot, self.request.unit);
        let limit = self.request.limit.map(|bytes| bytes.get().saturating_mul(8));
        let (limit, budget) = (limit.map(Rate::from_bps), self.request.budget);
        let prices = self.request.prices.clone();
        let at_least = self.request.estimates.has_bounds(&overlay.names);
        let bytes: ByteSize = amounts.iter().copied().sum();
        let least = limit.filter(|_| bytes > ByteSize::ZERO).map(|l| l.time_for(bytes));
        let name = self.within_budget(&overlay, &amounts);
        let planned = spawn_blocking(move || {
            let outset = |method, grid| Outset {
                overlay: &overlay,
                amounts: &amounts,
                method,
                grid,
                limit,
                prices: prices.as_ref(),
                budget,
            };
            // The bound says how long slots are; it needs none.
            let fluid = outset(Method::Fluid, Grid::PAPER).plan()?;
            let grid = choose_grid(&overlay, &amounts, fluid.forecast.bound_seconds, slot, unit);
            let method = name.method(grid.slot);
            match name {
                MethodName::Fluid => Ok((fluid, method, grid)),
                _ => Ok((outset(method, grid).plan()?, method, grid)),
            }
        });
        let planned: JoinHandle<Result<_, ForecastError>> = planned;
        let (mut plan, method, grid): (Plan, Method, Grid) =
            planned.await.map_err(|_| GatherError::Broken)??;
        let forecast = &mut plan.forecast;
        forecast.at_least = at_least;
        if at_least || forecast.bound_seconds.is_none() {
            // What was measured from below bounds nothing; the limit does so by itself.
            forecast.bound_seconds = least.map(|least| least.as_secs_f64());
        }
        Ok((plan, method, grid))
    }

    /// Rates that change would change what it costs: where the dearest ways cost more than there is to
    /// spend, a timetable says what goes which way.
    fn within_budget(&self, overlay: &Overlay, amounts: &[ByteSize]) -> MethodName {
        let Request { method, prices, budget, .. } = &self.request;
        let Some((prices, budget)) = prices.as_ref().zip(*budget) else { return *method };
        if *method != MethodName::Fluid || prices.most(overlay, amounts) <= budget {
            return *method;
        }
        let text = "--max-cost: a timetable (path-sync=95) keeps to what the plan says".to_owned();
        self.events.event(Event::Note { text });
        MethodName::PathSync(95.0)
    }

    /// What is known of the deadline before anything is moved.
    pub(super) fn tell_of_deadline(&self, forecast: &Forecast) {
        let Some(deadline) = self.request.deadline else { return };
        let wanted = time(deadline.as_secs_f64());
        let what = self.bounded_by(forecast);
        let text = match (forecast.bound_seconds, forecast.makespan_seconds) {
            (Some(bound), _) if self.is_beyond(Some(bound)) => format!(
                "the deadline of {wanted} cannot be held: {what} takes {} at least",
                time(bound)
            ),
            (Some(bound), Some(plan)) if self.is_beyond(Some(plan)) => format!(
                "the deadline of {wanted} will be missed by this method's plan of {}{}",
                time(plan),
                if forecast.at_least {
                    ", unless legs take more than was seen of them".to_owned()
                } else {
                    format!("; the bound is {}, which `--method fluid` aims at", time(bound))
                }
            ),
            (None, Some(plan)) if self.is_beyond(Some(plan)) => format!(
                "the deadline of {wanted} may be missed: by rates that are lower bounds it takes {}",
                time(plan)
            ),
            (_, None) => format!(
                "whether the deadline of {wanted} can be held is not known: not all legs that are \
                 needed are measured"
            ),
            _ => return,
        };
        self.events.event(Event::Note { text });
    }

    /// What no schedule can be shorter than.
    fn bounded_by(&self, forecast: &Forecast) -> &'static str {
        match (forecast.at_least || !forecast.unmeasured.is_empty(), self.request.budget) {
            (true, _) => "--bwlimit alone",
            (false, Some(_)) => {
                "any plan over the legs as they were measured that --max-cost allows"
            }
            (false, None) => "any schedule over the legs as they were measured",
        }
    }

    /// Legs of the plan that no line of the prices speaks of.
    pub(super) fn tell_of_prices(&self, forecast: &Forecast) {
        let Some(prices) = &self.request.prices else { return };
        let here = self.reach.me();
        let mut free: Vec<String> = Vec::new();
        for path in &forecast.paths {
            let from = std::iter::once(&path.source).chain(&path.via);
            for (from, to) in from.zip(path.via.iter().chain(std::iter::once(here))) {
                let leg = format!("{from} to {to}");
                if !prices.speaks_of(from, to) && !free.contains(&leg) {
                    free.push(leg);
                }
            }
        }
        if !free.is_empty() {
            let text = format!(
                "--prices says nothing of these legs, which count as free: {}",
                free.join(", ")
            );
            self.events.event(Event::Note { text });
        }
    }

    /// What is lacking where nothing is known of the ways to this host.
    pub(super) fn tell_of_unmeasured(&self, forecast: &Forecast) {
        let here = self.reach.me();
        if forecast.unmeasured.is_empty() || self.request.estimates.is_measured_to(here) {
            return;
        }
        let text = format!(
            "no leg to this host ({here}) was ever measured: the oracle measures where `thalweg node` \
             runs; without that, --rates FILE says what is known. It is collected all the same"
        );
        self.events.event(Event::Note { text });
    }

    /// Whether so long, from now on, is beyond the deadline.
    pub(super) fn is_beyond(&self, seconds: Option<f64>) -> bool {
        let long = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        let ends = long.map(|long| self.began.elapsed() + long);
        self.request.deadline.zip(ends).is_some_and(|(deadline, ends)| ends > deadline)
    }
}

/// Tenths where a second counts.
fn time(seconds: f64) -> String {
    let tenths = |s: f64| Duration::try_from_secs_f64((s * 10.0).ceil() / 10.0);
    let whole = |s: f64| Duration::try_from_secs_f64(s.ceil());
    let time = if seconds < 100.0 { tenths(seconds) } else { whole(seconds) };
    format_duration(time.unwrap_or(Duration::MAX))
}
