//! Problems for the global scheduler of streams: large ones, to see what a plan costs, and small ones, whose optimum is known.

use crate::random::{self, index, unit};
use rand_core::Rng;
use std::time::Duration;
use thalweg_plan::streams::{
    Leg, Node, Part, Preference, Problem, ProblemError, Stream, Subscriber, Terms,
};

/// What I, P and B frames add, bit/s (MGRP Table 2).
const TABLE_2: [u64; 3] = [216_000, 488_000, 456_000];

/// What a second rendition of half the size adds.
const SMALLER: [u64; 3] = [80_000, 160_000, 150_000];

/// Of its capacity a leg is planned with so much.
const HEADROOM: f64 = 0.93;

/// An overlay with its streams and subscribers.
#[derive(Clone, Debug)]
pub struct Mesh {
    nodes: Vec<Node>,
    legs: Vec<Leg>,
    streams: Vec<Stream>,
    subscribers: Vec<Subscriber>,
    seed: u64,
    changes: u64,
}

/// How large a mesh is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Nodes, each with a leg to each other.
    pub nodes: u32,
    pub streams: u32,
    /// Subscribers of each stream, on average.
    pub subscribers: u32,
}

impl Mesh {
    /// A full mesh. Capacities of legs are spread evenly on a logarithmic scale from 0.3 to 30 Mbit/s, every fourth node hands
    /// on streams of others, and each sends up to 20 to 200 Mbit/s. Streams are Table 2's; of a tenth of them everybody wants
    /// one, as popular ones, so that trees are of all sizes.
    pub fn new(seed: u64, size: Size) -> Self {
        let random = &mut random::stream(seed, "streams", 0);
        let node = |_| Node {
            relays: index(random, 4) == 0,
            transcoders: 0,
            egress: Some(logarithmic(random, 20e6, 200e6)),
        };
        let nodes: Vec<Node> = (0..size.nodes).map(node).collect();
        let pairs = (0..size.nodes).flat_map(|from| (0..size.nodes).map(move |to| (from, to)));
        let pairs = pairs.filter(|(from, to)| from != to);
        let legs = pairs.map(|(from, to)| leg(from, to, logarithmic(random, 0.3e6, 30e6), random));
        let legs: Vec<Leg> = legs.collect();
        let of = |_| stream(index(random, nodes.len()) as u32, &[TABLE_2]);
        let streams: Vec<Stream> = (0..size.streams).map(of).collect();
        let mut subscribers = Vec::new();
        for at in 0..size.streams {
            let count = if at % 10 == 0 { size.subscribers * 4 } else { size.subscribers * 2 / 3 };
            for _ in 0..count {
                subscribers.push(subscriber(at, index(random, nodes.len()) as u32, &levels()));
            }
        }
        Self { nodes, legs, streams, subscribers, seed, changes: 0 }
    }

    /// Its problem.
    ///
    /// # Errors
    /// If it is too large.
    pub fn problem(&self) -> Result<Problem, ProblemError> {
        let (nodes, legs) = (self.nodes.clone(), self.legs.clone());
        let (streams, subscribers) = (self.streams.clone(), self.subscribers.clone());
        Problem::new(nodes, legs, streams, subscribers, Terms::default())
    }

    /// Reports come: a twentieth of the legs have 40 to 160 % of what they had.
    pub fn change(&mut self) {
        self.changes += 1;
        let random = &mut random::stream(self.seed, "changes of streams", self.changes);
        for leg in &mut self.legs {
            if index(random, 20) == 0 {
                let factor = 0.4 + 1.2 * unit(random);
                leg.limit = leg.limit.map(|limit| (limit as f64 * factor) as u64);
            }
        }
    }
}

/// Three to five nodes with most legs between them, one to three streams of one or two renditions, two to six subscribers.
///
/// # Errors
/// None; a problem of this size can always be stated.
pub fn small_problem(seed: u64, terms: Terms) -> Result<Problem, ProblemError> {
    let random = &mut random::stream(seed, "small streams", 0);
    let nodes = 3 + index(random, 3) as u32;
    let mut legs = Vec::new();
    for from in 0..nodes {
        for to in (0..nodes).filter(|to| *to != from) {
            if index(random, 5) > 0 {
                legs.push(leg(from, to, logarithmic(random, 0.2e6, 4e6), random));
            }
        }
    }
    let renditions = [&[TABLE_2] as &[[u64; 3]], &[TABLE_2, SMALLER]];
    let streams: Vec<(usize, Stream)> = (0..1 + index(random, 3))
        .map(|_| {
            let kind = index(random, 2);
            (kind, stream(index(random, nodes as usize) as u32, renditions[kind]))
        })
        .collect();
    let subscribers = (0..2 + index(random, 5)).map(|_| {
        let at = index(random, streams.len());
        let preferences = if streams[at].0 == 0 { levels() } else { ladder() };
        let mut wants = subscriber(at as u32, index(random, nodes as usize) as u32, &preferences);
        wants.weight = 0.5 + 1.5 * unit(random);
        wants
    });
    let subscribers = subscribers.collect();
    let node = Node { relays: true, transcoders: 0, egress: None };
    let streams = streams.into_iter().map(|(_, stream)| stream).collect();
    Problem::new(vec![node; nodes as usize], legs, streams, subscribers, terms)
}

fn logarithmic(random: &mut impl Rng, low: f64, high: f64) -> u64 {
    (low * (high / low).powf(unit(random))) as u64
}

fn leg(from: u32, to: u32, capacity: u64, random: &mut impl Rng) -> Leg {
    Leg {
        from,
        to,
        limit: Some((capacity as f64 * HEADROOM) as u64),
        is_unknown: false,
        may_lift: true,
        delay: Duration::from_micros(logarithmic(random, 5e3, 80e3)),
    }
}

fn stream(publisher: u32, renditions: &[[u64; 3]]) -> Stream {
    let parts = renditions.iter().flatten().map(|bps| Part { bps: *bps, made: None }).collect();
    Stream { publisher, parts, relays: None }
}

fn subscriber(stream: u32, node: u32, preferences: &[Preference]) -> Subscriber {
    Subscriber {
        stream,
        node,
        preferences: preferences.to_vec(),
        weight: 1.0,
        latency: Duration::from_secs(1),
        is_held: false,
    }
}

/// All frames, without B, I alone.
fn levels() -> Vec<Preference> {
    let of = |(parts, utility)| Preference { parts, utility };
    [(0b111, 1.0), (0b011, 0.6), (0b001, 0.2)].map(of).to_vec()
}

/// The same of the larger rendition, and between them the smaller one whole.
fn ladder() -> Vec<Preference> {
    let of = |(parts, utility)| Preference { parts, utility };
    [(0b111, 1.0), (0b11_1000, 0.7), (0b011, 0.6), (0b01_1000, 0.4), (0b001, 0.2)].map(of).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_plan::streams::Flows;

    #[test]
    fn plans_of_small_meshes_with_ladders_come_near_the_optimum() {
        let mut least = (1.0, 0);
        for seed in 0..30 {
            let Some((optimum, _)) = small_problem(seed, Terms::none()).unwrap().exact() else {
                continue;
            };
            let problem = small_problem(seed, Terms::default()).unwrap();
            let planned =
                problem.plan(problem.moves(), &mut random::stream(seed, "plan of streams", 0));
            let flows = Flows::checked(&problem, &planned.configuration);
            assert_eq!(flows.as_ref(), Ok(&planned.flows), "seed {seed}");
            let share = if optimum > 0.0 { planned.flows.utility / optimum } else { 1.0 };
            least = if share < least.0 { (share, seed) } else { least };
        }
        assert!(least.0 >= 0.98, "seed {}: {} of the optimum", least.1, least.0);
    }

    #[test]
    fn a_mesh_is_planned_again_after_each_change_and_no_rule_is_broken() {
        let size = Size { nodes: 12, streams: 20, subscribers: 4 };
        let mut mesh = Mesh::new(7, size);
        let mut present = None;
        for round in 0..4 {
            let mut problem = mesh.problem().unwrap();
            if let Some(present) = present.take() {
                problem = problem.with_present(present);
            }
            let planned = problem.plan(4000, &mut random::stream(7, "plan of streams", round));
            let flows = Flows::checked(&problem, &planned.configuration);
            assert_eq!(flows.as_ref(), Ok(&planned.flows), "round {round}");
            assert!(planned.flows.utility > 0.0);
            present = Some(planned.configuration);
            mesh.change();
        }
    }
}
