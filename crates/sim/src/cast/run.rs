//! Runs a cast from start to end.

use super::{Control, Population};
use crate::{random, stats};
use serde::Serialize;
use std::time::Duration;
use thalweg_plan::tree::{
    EFFORT, Overlay, Storage, Tree,
    delivery::{Delivery, NodeProgress},
    depth::ChainLoss,
};
use thalweg_units::{ByteSize, Rate};

/// How the object gets to the receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CastArm {
    /// Down the tree that considers hosts' egress.
    Bounded,
    /// Down the widest-path tree, ties broken by lot (ROMA §VI-C: "arbitrarily").
    Widest,
    /// From the source to each (ROMA §VI-C, "N ∗ unicast").
    Unicast,
}

/// The settings of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How the object gets to the receivers.
    pub arm: CastArm,
    /// The number of receivers.
    pub receivers: usize,
    /// The number of known legs to each receiver, beside the source's.
    pub legs: usize,
    /// The size of the object.
    pub length: ByteSize,
    /// The rate that the source's access sends.
    pub egress: Rate,
    /// The size of rings; without it, all receivers are stores.
    pub ring: Option<ByteSize>,
    /// The losses of rings.
    pub loss: ChainLoss,
    /// This share of the receivers, 0 to 1, joins after half of the time that the slowest otherwise needs.
    pub late: f64,
    /// The seed of the population.
    pub seed: u64,
    /// How often control messages are sent.
    pub control: Control,
    /// The effort of the planner ([`EFFORT`]).
    pub effort: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            arm: CastArm::Bounded,
            receivers: 300,
            legs: 24,
            length: ByteSize::from_bytes(1 << 30),
            egress: Rate::from_mbps(1000.0),
            ring: None,
            loss: ChainLoss::NONE,
            late: 0.0,
            seed: 1,
            control: Control::default(),
            effort: EFFORT,
        }
    }
}

/// The spread of a value over all receivers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    pub median: f64,
    /// The most.
    pub max: f64,
}

/// The source's cost of the cast.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SourceCost {
    /// The number of its children.
    pub children: usize,
    /// How many times it sent the object.
    pub objects_sent: f64,
    /// Messages except for data, sent and got.
    pub messages: u64,
    /// The same, per receiver.
    pub messages_per_receiver: f64,
    /// Their bytes, per receiver.
    pub control_per_receiver: f64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CastReport {
    /// How the object got to the receivers.
    pub arm: CastArm,
    /// The number of receivers.
    pub receivers: usize,
    /// The number of receivers that were done in the end.
    pub done: usize,
    /// The source's cost.
    pub source: SourceCost,
    /// Hops from the source.
    pub depth: Spread,
    /// Children of the nodes that have any, except for the source.
    pub children: Spread,
    /// Time from joining to the end, s.
    pub took_s: Spread,
    /// Mean rate relative to that of the path's slowest hop alone, Eq. (2).
    pub of_min_hop: Spread,
    /// Mean rate relative to that of the widest path alone.
    pub of_widest: Spread,
    /// Messages of a receiver with the source and its parent, except for data.
    pub messages: Spread,
    /// The same, and those with its children.
    pub messages_all: Spread,
    /// Bytes of a receiver's messages with the source and its parent, % of the object.
    pub control: Spread,
    /// The same, and those with its children.
    pub control_all: Spread,
}

/// Runs one cast. The same settings give the same report.
pub fn run(settings: &Settings) -> CastReport {
    let Settings { receivers, legs, egress, ring, seed, .. } = *settings;
    let population = Population::new(receivers, legs, egress, ring, seed);
    let overlay = population.overlay();
    let tree = plan_tree(&overlay, settings);
    let progress = join_times(&overlay, &tree, settings);
    let mut delivery = Delivery::new(settings.length, overlay.nodes(), &progress);
    delivery.run(
        &overlay,
        &tree,
        &settings.loss,
        Duration::MAX,
        time_step(&overlay, &tree, settings),
    );
    summarise(settings, &overlay, &tree, &delivery, &progress)
}

fn plan_tree(overlay: &Overlay<'_>, settings: &Settings) -> Tree {
    match settings.arm {
        CastArm::Bounded => overlay.bounded(&settings.loss, settings.effort).tree,
        CastArm::Widest => {
            overlay.widest_by_lot(&mut random::stream(settings.seed, "cast ties", 0)).tree
        }
        CastArm::Unicast => {
            let parents = (0..overlay.nodes()).map(|node| (node > 0).then_some(0));
            Tree::from_parents(0, parents.collect())
        }
    }
}

/// The time that the slowest receiver takes by the tree's steady rates.
fn steady_time(overlay: &Overlay<'_>, tree: &Tree, settings: &Settings) -> Duration {
    let rates = overlay.rates(tree, &settings.loss);
    let slowest = overlay.receivers().map(|node| rates[node]).filter(|rate| *rate > Rate::ZERO);
    slowest.min().map_or(Duration::ZERO, |rate| rate.time_for(settings.length))
}

fn time_step(overlay: &Overlay<'_>, tree: &Tree, settings: &Settings) -> Duration {
    // With few receivers, being exact costs nothing.
    let parts = if settings.receivers <= 100 { return Duration::ZERO } else { 2000 };
    steady_time(overlay, tree, settings) / parts
}

fn join_times(overlay: &Overlay<'_>, tree: &Tree, settings: &Settings) -> Vec<NodeProgress> {
    let half = steady_time(overlay, tree, settings) / 2;
    // Only leaves join late: nodes with children are there from the start.
    let layout = tree.layout();
    let many = (settings.late.clamp(0.0, 1.0) * settings.receivers as f64).round() as usize;
    let mut progress = vec![NodeProgress::default(); overlay.nodes()];
    let leaves = overlay.receivers().filter(|node| layout.children(*node).is_empty());
    leaves.take(many).for_each(|node| progress[node].joins = half);
    progress
}

fn summarise(
    settings: &Settings,
    overlay: &Overlay<'_>,
    tree: &Tree,
    delivery: &Delivery,
    progress: &[NodeProgress],
) -> CastReport {
    let layout = tree.layout();
    let took: Vec<f64> = (0..overlay.nodes())
        .map(|node| {
            let done = delivery.done(node).unwrap_or_else(|| delivery.now());
            done.saturating_sub(progress[node].joins).as_secs_f64()
        })
        .collect();
    let keeps = |_| settings.ring.map_or(Storage::Store, Storage::Ring);
    let messages = settings.control.count_messages(&layout, keeps, &took, settings.length);
    let spread = |of: &dyn Fn(usize) -> f64| Spread::from_values(overlay.receivers().map(of));
    let bits = settings.length.as_bits() as f64;
    let (min_hop, widest) = (overlay.min_hop(tree), overlay.widest().width);
    let share = |node: usize, rate: Rate| bits / took[node] / rate.as_bps() as f64;
    let each = overlay.receivers().map(|node| messages[node].with_source);
    let at_source = each.fold(messages[0].with_children, |sum, one| sum + one);
    let receivers = settings.receivers.max(1) as f64;
    let percent = |bytes: u64| bytes as f64 * 800.0 / bits;
    CastReport {
        arm: settings.arm,
        receivers: settings.receivers,
        done: overlay.receivers().filter(|node| delivery.done(*node).is_some()).count(),
        source: SourceCost {
            children: layout.children(0).len(),
            objects_sent: delivery.moved(0).1.as_bits() as f64 / bits,
            messages: at_source.messages,
            messages_per_receiver: at_source.messages as f64 / receivers,
            control_per_receiver: at_source.bytes as f64 / receivers,
        },
        depth: spread(&|node| tree.depth(node).unwrap_or(0) as f64),
        children: Spread::from_values(
            overlay.receivers().map(|node| layout.children(node).len() as f64).filter(|n| *n > 0.0),
        ),
        took_s: spread(&|node| took[node]),
        of_min_hop: spread(&|node| share(node, min_hop[node])),
        of_widest: spread(&|node| share(node, widest[node])),
        messages: spread(&|node| messages[node].upward().messages as f64),
        messages_all: spread(&|node| messages[node].total().messages as f64),
        control: spread(&|node| percent(messages[node].upward().bytes)),
        control_all: spread(&|node| percent(messages[node].total().bytes)),
    }
}

impl Spread {
    /// Zeros without values.
    fn from_values(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        if values.is_empty() {
            return Self { min: 0.0, median: 0.0, max: 0.0 };
        }
        let at = |share| stats::quantile(&values, share);
        Self { min: at(0.0), median: at(0.5), max: at(1.0) }
    }
}
