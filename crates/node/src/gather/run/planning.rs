//! The plan, and what is said of it.

use super::{
    super::{Event, Forecast, Method, MethodName, Outset, Overlay, Plan, choose_grid},
    GatherError, Request, Run,
};
use std::{sync::Arc, time::Duration};
use thalweg_plan::collection::Grid;
use thalweg_units::{ByteSize, Rate};
use tokio::task::spawn_blocking;

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
        planned.await.map_err(|_| GatherError::Broken)?
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
        let seconds = deadline.as_secs_f64();
        let text = match (forecast.bound_seconds, forecast.makespan_seconds) {
            (Some(bound), _) if self.is_beyond(Some(bound)) => format!(
                "the deadline of {seconds:.0} s cannot be held: no schedule over the legs as they \
                 were measured is shorter than {bound:.0} s"
            ),
            (Some(bound), Some(plan)) if self.is_beyond(Some(plan)) => format!(
                "the deadline of {seconds:.0} s will be missed by this method's plan of {plan:.0} \
                 s; the bound is {bound:.0} s, which `--method fluid` aims at"
            ),
            (None, _) => "whether the deadline can be held is not known: not all legs that are \
                          needed are measured"
                .to_owned(),
            _ => return,
        };
        self.events.event(Event::Note { text });
    }

    /// Whether so long, from now on, is beyond the deadline.
    pub(super) fn is_beyond(&self, seconds: Option<f64>) -> bool {
        let long = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        let ends = long.map(|long| self.began.elapsed() + long);
        self.request.deadline.zip(ends).is_some_and(|(deadline, ends)| ends > deadline)
    }
}
