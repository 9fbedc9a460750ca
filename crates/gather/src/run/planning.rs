//! Makes the plan, and reports on it.

use super::{
    super::{Event, Forecast, ForecastError, ForecastInput, Method, MethodName, Plan, choose_grid},
    CollectionRun, GatherError, Request,
};
use std::{sync::Arc, time::Duration};
use thalweg_base::rate_timetable::RateTimetable;
use thalweg_paths::overlay::Overlay;
use thalweg_plan::collection::Grid;
use thalweg_units::{ByteSize, Rate, format_duration};
use tokio::task::{JoinHandle, spawn_blocking};

impl CollectionRun {
    /// Returns the plan, the method with its slot length, and the grid.
    pub(super) async fn plan(
        &self,
        overlay: Arc<Overlay>,
        amounts: Vec<ByteSize>,
    ) -> Result<(Plan, Method, Grid), GatherError> {
        let (slot, unit) = (self.request.slot, self.request.unit);
        // Of a timetable the highest rate, so that no deadline is called impossible that can be met.
        let limit = self.request.limit.as_ref().and_then(RateTimetable::highest);
        let limit = limit.map(|bytes| bytes.get().saturating_mul(8));
        let (limit, budget) = (limit.map(Rate::from_bps), self.request.budget);
        let prices = self.request.prices.clone();
        let at_least = self.request.estimates.has_bounds(&overlay.names);
        let bytes: ByteSize = amounts.iter().copied().sum();
        let least = limit.filter(|_| bytes > ByteSize::ZERO).map(|l| l.time_for(bytes));
        let name = self.method_within_budget(&overlay, &amounts);
        let planned = spawn_blocking(move || {
            let outset = |method, grid| ForecastInput {
                overlay: &overlay,
                amounts: &amounts,
                method,
                grid,
                limit,
                prices: prices.as_ref(),
                budget,
            };
            // The bound determines the slot length, and does not depend on a grid.
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
            // Rates that are only lower bounds give no bound; the ingress limit gives one by itself.
            forecast.bound_seconds = least.map(|least| least.as_secs_f64());
        }
        Ok((plan, method, grid))
    }

    /// Chooses a timetable instead of the fluid method if the most expensive paths would exceed the budget: changing
    /// rates would change the price, whereas a timetable fixes the data of each path.
    fn method_within_budget(&self, overlay: &Overlay, amounts: &[ByteSize]) -> MethodName {
        let Request { method, prices, budget, .. } = &self.request;
        let Some((prices, budget)) = prices.as_ref().zip(*budget) else { return *method };
        if *method != MethodName::Fluid || prices.most(overlay, amounts) <= budget {
            return *method;
        }
        let text =
            "--max-cost: using a timetable (path-sync=95), because it keeps to the plan's cost"
                .to_owned();
        self.events.event(Event::Note { text });
        MethodName::PathSync(95.0)
    }

    /// Reports what is known about the deadline before anything is moved.
    pub(super) fn report_deadline(&self, forecast: &Forecast) {
        let Some(deadline) = self.request.deadline else { return };
        let wanted = time(deadline.as_secs_f64());
        let what = self.bounded_by(forecast);
        let text = match (forecast.bound_seconds, forecast.makespan_seconds) {
            (Some(bound), _) if self.is_beyond(Some(bound)) => format!(
                "the deadline of {wanted} cannot be met: {what} takes at least {}",
                time(bound)
            ),
            (Some(bound), Some(plan)) if self.is_beyond(Some(plan)) => format!(
                "the deadline of {wanted} will be missed: this method's plan takes {}{}",
                time(plan),
                if forecast.at_least {
                    ", unless legs carry more than was measured".to_owned()
                } else {
                    format!("; the lower bound is {}, and `--method fluid` aims at it", time(bound))
                }
            ),
            (None, Some(plan)) if self.is_beyond(Some(plan)) => format!(
                "the deadline of {wanted} may be missed: with rates that are lower bounds, the plan takes {}",
                time(plan)
            ),
            (_, None) => format!(
                "it is unknown whether the deadline of {wanted} can be met: some legs that are \
                 needed are not measured"
            ),
            _ => return,
        };
        self.events.event(Event::Note { text });
    }

    /// The name of the bound, for messages.
    fn bounded_by(&self, forecast: &Forecast) -> &'static str {
        match (forecast.at_least || !forecast.unmeasured.is_empty(), self.request.budget) {
            (true, _) => "--bwlimit alone",
            (false, Some(_)) => "any plan over the measured legs that --max-cost allows",
            (false, None) => "any schedule over the measured legs",
        }
    }

    /// Reports legs of the plan without a price.
    pub(super) fn report_prices(&self, forecast: &Forecast) {
        let Some(prices) = &self.request.prices else { return };
        let here = self.dialer.me();
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
                "--prices has no price for these legs, which count as free: {}",
                free.join(", ")
            );
            self.events.event(Event::Note { text });
        }
    }

    /// Reports that no path to this host is measured.
    pub(super) fn report_unmeasured(&self, forecast: &Forecast) {
        let here = self.dialer.me();
        if forecast.unmeasured.is_empty() || self.request.estimates.is_measured_to(here) {
            return;
        }
        let text = format!(
            "no leg to this host ({here}) was ever measured, so the collection starts without \
             rates; the oracle measures hosts that run `thalweg node`, and --rates FILE gives \
             rates without it"
        );
        self.events.event(Event::Note { text });
    }

    /// Whether a duration, starting now, exceeds the deadline.
    pub(super) fn is_beyond(&self, seconds: Option<f64>) -> bool {
        let long = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        let ends = long.map(|long| self.began.elapsed() + long);
        self.request.deadline.zip(ends).is_some_and(|(deadline, ends)| ends > deadline)
    }
}

/// Formats seconds, rounded up to tenths below 100 s and to whole seconds above.
fn time(seconds: f64) -> String {
    let tenths = |s: f64| Duration::try_from_secs_f64((s * 10.0).ceil() / 10.0);
    let whole = |s: f64| Duration::try_from_secs_f64(s.ceil());
    let time = if seconds < 100.0 { tenths(seconds) } else { whole(seconds) };
    format_duration(time.unwrap_or(Duration::MAX))
}
