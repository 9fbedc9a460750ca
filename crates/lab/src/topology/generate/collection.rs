//! The network of the evaluation of coordinated collection, the same as in the simulator.

use super::Generated;
use crate::topology::{HostSpec, LinkSpec, PathSpec, Queue, TopologyError};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use thalweg_sim::collection::{Topology, background_ends, bistros};
use thalweg_units::{ByteSize, Rate};

/// `kind = "collection"`: the transit-stub network of Cheng et al., *Large-scale Data Collection: a Coordinated
/// Approach* (INFOCOM 2004) §VI. The simulator's code draws it, so that a seed gives the same network in both.
///
/// Two transit domains A and B of four transit nodes each are joined at two peering points. Each transit node has three
/// stub domains of six nodes: 152 nodes in all, links of 10, 5 and 2.5 Mbit/s, round trips of at most 80 ms. Links are
/// named after their ends: `a0_a2`, the peering points `a0_b0` and `a1_b1` (forward is from A to B), `a0_a0s1n0`,
/// `a0s1n0_a0s1n4`. Routes take the fewest hops.
///
/// The hosts are the bistros `s1` … `s7` and the destination `d`, each at a node of a different stub domain, and `bg-a`
/// and `bg-b`, which have an interface at each of the 24 nodes where background flows end. One such host stands for
/// many nodes, so that two programs can run all flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collection {
    /// The factor by which the network is faster than in the paper: rates are multiplied by it, and delays divided.
    /// Windows and queues in packets, and the shares of flows, stay the same. Default 1.
    #[serde(default = "as_in_the_paper")]
    pub pace: f64,
    /// The queue of each link. Default: 50 packets of 1500 B, as in ns-2; the paper does not say.
    #[serde(default = "fifty_packets")]
    pub queue: Queue,
}

const fn as_in_the_paper() -> f64 {
    1.0
}

const fn fifty_packets() -> Queue {
    Queue::Bytes(ByteSize::from_bytes(75_000))
}

/// The largest pace; an emulator on one machine cannot keep up with more.
const PACE_MAX: f64 = 100.0;

/// An interface, like `s1` or `bg-a:3`, and its node.
type Attachment = (String, usize);

impl Collection {
    pub(super) fn expand(&self, seed: u64) -> Result<Generated, TopologyError> {
        if !(0.01..=PACE_MAX).contains(&self.pace) {
            let why = format!("must be 0.01 to {PACE_MAX}");
            return Err(TopologyError::value("generate.pace", self.pace, why));
        }
        let net = Topology::transit_stub(seed);
        let mut out = Generated::default();
        let names = self.links(&net, &mut out);
        let attachments = hosts(&net, seed, &mut out);
        let mut ways = BTreeMap::new();
        for (i, from) in attachments.iter().enumerate() {
            for to in attachments[i + 1..].iter().filter(|to| host(&to.0) != host(&from.0)) {
                let mut way = |a: usize, b: usize| -> Vec<String> {
                    let links = ways.entry((a, b)).or_insert_with(|| net.route(a, b));
                    links.iter().flatten().map(|link| names[*link as usize].clone()).collect()
                };
                out.paths.push(PathSpec {
                    from: from.0.clone(),
                    to: to.0.clone(),
                    links: way(from.1, to.1),
                    back: Some(way(to.1, from.1)),
                    oneway: false,
                });
            }
        }
        Ok(out)
    }

    /// Adds the links. Returns the names of their directions in the network's order.
    fn links(&self, net: &Topology, out: &mut Generated) -> Vec<String> {
        let mut names = Vec::with_capacity(net.capacity.len());
        for (at, mbps) in net.capacity.iter().enumerate().step_by(2) {
            let (from, to) = net.ends(at as u32);
            let name = format!("{}_{}", net.name(from), net.name(to));
            let micros = net.delay(at as u32) / self.pace * 1e6;
            let link = LinkSpec {
                rate: Some(Rate::from_bps((mbps * self.pace * 1e6).round() as u64)),
                queue: Some(self.queue),
                delay: Some(Duration::from_micros(micros.round() as u64)),
                ..LinkSpec::default()
            };
            out.link(name.clone(), &link);
            names.extend([format!("{name}.fwd"), format!("{name}.rev")]);
        }
        names
    }
}

/// Adds the hosts. Returns their interfaces.
fn hosts(net: &Topology, seed: u64, out: &mut Generated) -> Vec<Attachment> {
    let nodes = bistros(net, seed);
    let last = nodes.len() - 1;
    let named = nodes.into_iter().enumerate();
    let name = |at: usize| if at == last { "d".to_owned() } else { format!("s{}", at + 1) };
    let mut attachments: Vec<Attachment> = named.map(|(at, node)| (name(at), node)).collect();
    attachments.iter().for_each(|(name, _)| out.host(name));
    for (domain, name) in [(0, "bg-a"), (1, "bg-b")] {
        let nodes = background_ends(net, domain);
        let spec = HostSpec { interfaces: Some(nodes.len()), ..HostSpec::default() };
        out.hosts.insert(name.to_owned(), spec);
        let each = nodes.into_iter().enumerate();
        attachments.extend(each.map(|(at, node)| (format!("{name}:{at}"), node)));
    }
    attachments
}

fn host(interface: &str) -> &str {
    interface.split(':').next().unwrap_or(interface)
}
