//! The load of each leg under a configuration, and its validity. Computed independently from each subscriber's path,
//! to check the incremental [`State`](super::state::State).

use super::problem::{Configuration, Parts, Problem, bits};
use std::{collections::BTreeMap, time::Duration};
use thiserror::Error;

/// The flow of one stream to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sender.
    pub parent: u32,
    pub parts: Parts,
}

/// A running transcoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transcoding {
    pub stream: u32,
    pub node: u32,
    /// The part that it makes.
    pub part: u8,
}

/// All flows of a configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    /// By stream and receiving node.
    pub by_place: BTreeMap<(u32, u32), Flow>,
    /// The load of each leg, bit/s.
    pub loads: Vec<u64>,
    /// The rate that each node sends, bit/s.
    pub egress: Vec<u64>,
    /// The running transcoders, as early on the route as possible.
    pub transcodings: Vec<Transcoding>,
    /// The sum of weights times utilities of the served subscribers.
    pub utility: f64,
}

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A served subscriber has no route.
    #[error("subscriber {0} has no route from the publisher")]
    Path(u32),
    /// No node on the route can transcode for it.
    #[error("no node on the route to subscriber {0} can transcode for it")]
    Transcoder(u32),
    /// The delay of the route is too long.
    #[error("the delay of the route to subscriber {0} exceeds its latency limit")]
    Latency(u32),
    /// It is raised over a leg without a recent estimate.
    #[error("subscriber {0} is raised over a leg without a recent estimate")]
    Lifted(u32),
    /// A leg exceeds its limit.
    #[error("leg {0} exceeds its limit")]
    Leg(u32),
    /// A node exceeds its limit.
    #[error("node {0} exceeds its egress limit")]
    Egress(u32),
}

/// The nodes of a subscriber's route, from the publisher's on.
fn path(problem: &Problem, configuration: &Configuration, who: u32) -> Option<Vec<u32>> {
    let subscriber = &problem.subscribers[who as usize];
    let stream = subscriber.stream;
    let parents = &configuration.parents[stream as usize];
    let (mut at, mut nodes) = (subscriber.node, vec![subscriber.node]);
    while at != problem.streams[stream as usize].publisher {
        let parent = *parents.get(&at)?;
        let is_node = (parent as usize) < problem.nodes.len();
        if !is_node || !problem.may_send(stream, parent) || nodes.contains(&parent) {
            return None;
        }
        problem.leg_of(parent, at)?;
        nodes.push(parent);
        at = parent;
    }
    nodes.reverse();
    (nodes.len() <= usize::from(problem.terms.max_legs) + 1).then_some(nodes)
}

/// The parts on the legs of a subscriber's route, and where its transcoders run.
struct Needed {
    legs: Vec<Parts>,
    transcodings: Vec<(u32, u8)>,
    is_made: bool,
}

fn needed(problem: &Problem, stream: u32, nodes: &[u32], parts: Parts) -> Needed {
    let of = &problem.streams[stream as usize].parts;
    let mut all =
        Needed { legs: vec![0; nodes.len() - 1], transcodings: Vec::new(), is_made: true };
    for part in bits(parts) {
        let Some(made) = of[part].made else {
            all.legs.iter_mut().for_each(|leg| *leg |= 1 << part);
            continue;
        };
        let can =
            |node: &u32| problem.nodes[*node as usize].transcoders & (1 << made.transcoder) != 0;
        let Some(first) = nodes.iter().position(can) else {
            all.is_made = false;
            continue;
        };
        all.transcodings.push((nodes[first], part as u8));
        for (at, leg) in all.legs.iter_mut().enumerate() {
            *leg |= if at < first { made.from } else { 1 << part };
        }
    }
    all
}

impl Flows {
    /// The flows of a configuration. Subscribers without a route get nothing.
    pub fn of(problem: &Problem, configuration: &Configuration) -> Self {
        let mut flows = Self {
            loads: vec![0; problem.legs.len()],
            egress: vec![0; problem.nodes.len()],
            ..Self::default()
        };
        for (who, choice) in (0..).zip(&configuration.choices) {
            let (Some(choice), Some(nodes)) = (choice, path(problem, configuration, who)) else {
                continue;
            };
            let subscriber = &problem.subscribers[who as usize];
            let preference = problem.preference(who, *choice);
            let needed = needed(problem, subscriber.stream, &nodes, preference.parts);
            flows.utility += subscriber.weight * preference.utility;
            for (ends, parts) in nodes.windows(2).zip(&needed.legs) {
                let place = flows.by_place.entry((subscriber.stream, ends[1]));
                place.or_insert(Flow { parent: ends[0], parts: 0 }).parts |= parts;
            }
            let stream = subscriber.stream;
            let runs = needed.transcodings.into_iter();
            flows.transcodings.extend(runs.map(|(node, part)| Transcoding { stream, node, part }));
        }
        flows.transcodings.sort_unstable();
        flows.transcodings.dedup();
        for ((stream, node), flow) in &flows.by_place {
            let rate = problem.rate(*stream, flow.parts);
            if let Some(leg) = problem.leg_of(flow.parent, *node) {
                flows.loads[leg as usize] += rate;
            }
            flows.egress[flow.parent as usize] += rate;
        }
        flows
    }

    /// The flows of a configuration that breaks no rule.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn checked(problem: &Problem, configuration: &Configuration) -> Result<Self, Fault> {
        for (who, choice) in (0..).zip(&configuration.choices) {
            if let Some(choice) = choice {
                check(problem, configuration, who, *choice)?;
            }
        }
        let flows = Self::of(problem, configuration);
        let within = |limit: Option<u64>, load: u64| limit.is_none_or(|limit| load <= limit);
        let legs = (0..).zip(problem.legs.iter().zip(&flows.loads));
        let over = legs.filter(|(_, (leg, load))| !within(leg.limit, **load));
        if let Some((leg, _)) = over.min_by_key(|(leg, _)| *leg) {
            return Err(Fault::Leg(leg));
        }
        let nodes = (0..).zip(problem.nodes.iter().zip(&flows.egress));
        let over = nodes.filter(|(_, (node, load))| !within(node.egress, **load));
        match over.min_by_key(|(node, _)| *node) {
            Some((node, _)) => Err(Fault::Egress(node)),
            None => Ok(flows),
        }
    }
}

/// Checks the choice of one subscriber.
fn check(
    problem: &Problem,
    configuration: &Configuration,
    who: u32,
    choice: u8,
) -> Result<(), Fault> {
    let nodes = path(problem, configuration, who).ok_or(Fault::Path(who))?;
    let subscriber = &problem.subscribers[who as usize];
    let parts = problem.preference(who, choice).parts;
    let needed = needed(problem, subscriber.stream, &nodes, parts);
    if !needed.is_made {
        return Err(Fault::Transcoder(who));
    }
    let legs = nodes.windows(2).filter_map(|ends| problem.leg_of(ends[0], ends[1]));
    let legs: Vec<_> = legs.map(|leg| &problem.legs[leg as usize]).collect();
    if legs.iter().map(|leg| leg.delay).sum::<Duration>() > subscriber.latency {
        return Err(Fault::Latency(who));
    }
    if !problem.is_lift(who, choice) {
        return Ok(());
    }
    let is_proven = |(to, (leg, parts)): (&u32, (&&super::Leg, &Parts))| {
        let was = problem.was(subscriber.stream, *to);
        leg.may_lift || was.is_some_and(|was| was.parent == leg.from && parts & !was.parts == 0)
    };
    let are_proven = nodes[1..].iter().zip(legs.iter().zip(&needed.legs)).all(is_proven);
    if subscriber.is_held || !are_proven { Err(Fault::Lifted(who)) } else { Ok(()) }
}
