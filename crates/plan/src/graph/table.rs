//! Creates a graph from a table's estimates.

use super::{Graph, MAX_AGE};
use std::time::Duration;
use thalweg_measure::{
    AvailableRate, Bound, Estimate, Interface, Metric, NodeIndex, Subject, Table, planned_rate,
};
use thalweg_units::{Rate, Time};

/// The youngest fresh values of one leg.
#[derive(Default)]
struct LegRates {
    exact: Option<Estimate>,
    at_least: Option<Estimate>,
    /// The available bandwidth.
    spare: Option<Estimate>,
}

/// The rate to plan a leg with. `exact` and `at_least` are its youngest throughputs, `spare` is its youngest available
/// bandwidth: see [`planned_rate`].
pub fn leg_rate(
    exact: &Estimate,
    at_least: Option<&Estimate>,
    spare: Option<&Estimate>,
) -> Option<Rate> {
    let raised = at_least.filter(|e| e.age < exact.age && e.value > exact.value);
    let base = raised.unwrap_or(exact);
    Some(available(base.rate()?, base.age, spare))
}

/// The rate to plan a leg with on which TCP reached `rate` this long ago.
pub fn available(rate: Rate, age: Duration, spare: Option<&Estimate>) -> Rate {
    let bps = planned_rate(rate.as_bps() as f64, age, spare.map(AvailableRate::from_estimate));
    Rate::from_bps(bps.round() as u64)
}

impl LegRates {
    fn take(&mut self, e: Estimate) {
        let place = match (e.metric, e.bound) {
            (Metric::AvailableBandwidth, _) => &mut self.spare,
            (_, Bound::Exact) => &mut self.exact,
            (_, Bound::AtLeast) => &mut self.at_least,
        };
        if e.age <= MAX_AGE && place.as_ref().is_none_or(|known| e.age <= known.age) {
            *place = Some(e);
        }
    }

    /// Enters the rate to plan with into the graph, if there is one and it exceeds those of the sender's other
    /// interfaces.
    fn enter(&self, graph: &mut Graph, from: Interface, to: NodeIndex) {
        let Some(exact) = &self.exact else { return };
        let rate = leg_rate(exact, self.at_least.as_ref(), self.spare.as_ref());
        let (i, j) = (from.node.0 as usize, to.0 as usize);
        if rate > graph.rate(i, j) {
            graph.set(i, j, rate);
        }
    }
}

/// Takes one pass, because a table's estimates come in the order of their subjects.
pub(super) fn graph(table: &Table, now: Time) -> Graph {
    let mut graph = Graph::new(table.nodes() as usize);
    let mut current: Option<(Interface, NodeIndex, LegRates)> = None;
    let of_rates =
        |e: &Estimate| matches!(e.metric, Metric::Throughput | Metric::AvailableBandwidth);
    for e in table.iter(now).filter(of_rates) {
        let Subject::Leg { from, to } = e.subject else { continue };
        match &mut current {
            Some((f, t, leg)) if (*f, *t) == (from, to) => leg.take(e),
            _ => {
                let mut leg = LegRates::default();
                leg.take(e);
                if let Some((from, to, leg)) = current.replace((from, to, leg)) {
                    leg.enter(&mut graph, from, to);
                }
            }
        }
    }
    if let Some((from, to, leg)) = current {
        leg.enter(&mut graph, from, to);
    }
    graph
}
