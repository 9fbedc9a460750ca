//! Forecasts of the direct methods.

use super::{ForecastInput, Plan, PlannedPath};
use thalweg_plan::collection::Direct;
use thalweg_units::Rate;

impl ForecastInput<'_> {
    /// Adds the forecast: each source sends alone over its leg to this host; the ingress limit applies to all together.
    pub(super) fn direct(&self, plan: &mut Plan, direct: Direct) {
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
}

/// The makespan if each source alone takes the given time and none slows another.
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
                // The slot that becomes free first takes the next source.
                places.sort_by(f64::total_cmp);
                places[0] += time;
            }
            last(&places)
        }
    }
}
