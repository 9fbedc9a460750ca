//! Counters of the prober, for `GET /metrics`. No label names a peer.

use super::ProbeBudget;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::Counter, family::Family, gauge::ConstGauge},
    registry::Registry,
};
use std::{fmt, sync::Arc};
use thalweg_wire::mesh::measure::Outcome;

/// The role and the outcome of a flow.
type Labels = [(&'static str, &'static str); 2];

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowOutcome {
    /// The flow was judged, whether its rate was steady or not.
    Measured,
    /// The leg is at least as fast as measured.
    AtLeast,
    /// One of the two ends refused.
    Refused,
    /// The other end could not be reached at all.
    Down,
    Failed,
}

impl FlowOutcome {
    const ALL: [Self; 5] = [Self::Measured, Self::AtLeast, Self::Refused, Self::Down, Self::Failed];

    /// The end of an order that this node carried out.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Measured { at_least: true, .. } => Self::AtLeast,
            Outcome::Measured { .. } => Self::Measured,
            Outcome::Busy => Self::Refused,
            Outcome::Failed { is_down: true, .. } => Self::Down,
            Outcome::Failed { .. } => Self::Failed,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::AtLeast => "at_least",
            Self::Refused => "refused",
            Self::Down => "down",
            Self::Failed => "failed",
        }
    }
}

/// Flows by role and outcome.
#[derive(Clone, Debug)]
pub(super) struct FlowCounts(Family<Labels, Counter>);

const fn labels(is_sender: bool, ended: FlowOutcome) -> Labels {
    [("role", if is_sender { "sender" } else { "receiver" }), ("outcome", ended.label())]
}

impl Default for FlowCounts {
    fn default() -> Self {
        let new = Self(Family::default());
        // At zero from the start, so that the first one is seen as an increase.
        for ended in FlowOutcome::ALL {
            drop(new.0.get_or_create(&labels(true, ended)));
            drop(new.0.get_or_create(&labels(false, ended)));
        }
        new
    }
}

impl FlowCounts {
    /// Counts a bulk flow by this node's role and by its outcome.
    pub fn count(&self, is_sender: bool, ended: FlowOutcome) {
        self.0.get_or_create(&labels(is_sender, ended)).inc();
    }

    /// Registers the counters and the budget as `thalweg_measure_…`.
    pub fn register(&self, probe_budget: &Arc<ProbeBudget>, registry: &mut Registry) {
        let at = registry.sub_registry_with_prefix("thalweg_measure");
        at.register("flows", "Bulk flows by role and outcome", self.0.clone());
        registry.register_collector(Box::new(ProbeBudgetMetrics(Arc::clone(probe_budget))));
    }
}

/// Reads the bytes of the day when metrics are collected.
#[derive(Debug)]
struct ProbeBudgetMetrics(Arc<ProbeBudget>);

impl Collector for ProbeBudgetMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, value) in [
            (
                "thalweg_measure_budget_left_bytes",
                "Bytes for measurements that are left in this UTC day.",
                self.0.left(),
            ),
            (
                "thalweg_measure_daily_budget_bytes",
                "Limit of bytes for measurements in a UTC day.",
                self.0.per_day(),
            ),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value.as_bytes()).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use thalweg_base::budget::Budget;
    use thalweg_units::{ByteSize, NodeId};

    #[test]
    fn flows_and_the_days_bytes_are_shown() {
        let probe_budget = ProbeBudget::new(Arc::new(Budget::new()), ByteSize::from_bytes(1000));
        let (probe_budget, counts, mut registry) =
            (Arc::new(probe_budget), FlowCounts::default(), Registry::default());
        counts.register(&probe_budget, &mut registry);
        probe_budget.charge(NodeId::from_bytes([1; 32]), 300);
        counts.count(true, FlowOutcome::AtLeast);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "thalweg_measure_flows_total{role=\"sender\",outcome=\"at_least\"} 1\n",
            "thalweg_measure_flows_total{role=\"receiver\",outcome=\"refused\"} 0\n",
            "thalweg_measure_budget_left_bytes 700\n",
            "thalweg_measure_daily_budget_bytes 1000\n",
        ] {
            assert!(text.contains(line), "{line} not in {text}");
        }
    }
}
