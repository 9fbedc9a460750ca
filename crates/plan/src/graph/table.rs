//! From estimates to a graph.

use super::{Graph, MAX_AGE};
use thalweg_measure::{Bound, Estimate, Interface, Metric, NodeIndex, Subject, Table};
use thalweg_units::Time;

/// The youngest fresh values of one leg.
#[derive(Default)]
struct Leg {
    exact: Option<Estimate>,
    at_least: Option<Estimate>,
}

impl Leg {
    fn take(&mut self, e: Estimate) {
        let place = match e.bound {
            Bound::Exact => &mut self.exact,
            Bound::AtLeast => &mut self.at_least,
        };
        if e.age <= MAX_AGE && place.as_ref().is_none_or(|known| e.age <= known.age) {
            *place = Some(e);
        }
    }

    /// Puts the rate to plan with into the graph, if there is one and it beats those of
    /// the sender's other interfaces.
    fn enter(&self, graph: &mut Graph, from: Interface, to: NodeIndex) {
        let Some(exact) = &self.exact else { return };
        let raised = self.at_least.as_ref().filter(|e| e.age < exact.age);
        let rate = exact.rate().max(raised.and_then(Estimate::rate));
        let (i, j) = (from.node.0 as usize, to.0 as usize);
        if rate > graph.rate(i, j) {
            graph.set(i, j, rate);
        }
    }
}

/// One pass: a table's estimates come in the order of their subjects.
pub(super) fn graph(table: &Table, now: Time) -> Graph {
    let mut graph = Graph::new(table.nodes() as usize);
    let mut current: Option<(Interface, NodeIndex, Leg)> = None;
    for e in table.iter(now).filter(|e| e.metric == Metric::Throughput) {
        let Subject::Leg { from, to } = e.subject else { continue };
        match &mut current {
            Some((f, t, leg)) if (*f, *t) == (from, to) => leg.take(e),
            _ => {
                let mut leg = Leg::default();
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
