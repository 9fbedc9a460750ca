//! Background traffic as real flows: infinite TCP downloads, and on–off streams of UDP.
//!
//! "Each background flow is an infinite FTP with a probability of 0.75. Otherwise, it is an on-off CBR UDP
//! flow" (§VI). One program sends all flows of domain B, another one receives them in domain A: host
//! `bg-b` and `bg-a` have an interface at every node where a flow may end.

mod receive;
mod send;
mod udp;

pub use receive::{Args as ReceiveArgs, run as receive};
pub use send::{Args as SendArgs, run as send};

use super::Scene;
use thalweg_sim::collection::{Background, OnOff, Topology, background_ends};

/// TCP and UDP port of the receiver. A topology's classes name it.
const PORT: u16 = 9100;

/// Which flows there are.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Which {
    #[command(flatten)]
    scene: Scene,
    /// How many; a quarter crosses the first peering point
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1000))]
    flows: u32,
}

/// The first peering point's share to the second's: the paper's headline.
const RATIO: (u32, u32) = (1, 3);

/// A flow between interfaces `bg-b:from` and `bg-a:to`.
#[derive(Clone, Copy, Debug)]
struct Flow {
    from: usize,
    to: usize,
    /// At the pace of the scene; absent: an infinite download.
    stream: Option<OnOff>,
}

impl Which {
    fn drawn(&self) -> Vec<Flow> {
        let Scene { seed, pace } = self.scene;
        let net = Topology::transit_stub(seed);
        let (a, b) = (background_ends(&net, 0), background_ends(&net, 1));
        let place = |nodes: &[usize], node| nodes.iter().position(|n| *n == node).unwrap_or(0);
        let faster = |s: OnOff| OnOff { rate: s.rate * pace, on: s.on / pace, off: s.off / pace };
        let drawn = Background::new(&net, seed, self.flows, RATIO).drawn();
        let flow = |flow: &thalweg_sim::collection::Drawn| Flow {
            from: place(&b, flow.from),
            to: place(&a, flow.to),
            stream: flow.stream.map(faster),
        };
        drawn.iter().map(flow).collect()
    }
}

/// The name of an interface of `bg-a` or `bg-b`, as the lab gives it.
fn interface(host: &str, at: usize) -> String {
    if at == 0 { host.to_owned() } else { format!("{host}.wan{at}") }
}
