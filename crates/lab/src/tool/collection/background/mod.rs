//! Background traffic as real flows: infinite TCP downloads, and on–off streams of UDP.
//!
//! "Each background flow is an infinite FTP with a probability of 0.75. Otherwise, it is an on-off CBR UDP flow" (§VI).
//! One program sends all flows in domain B, another one receives them in domain A: the hosts `bg-b` and `bg-a` have an
//! interface at every node where a flow may end.

mod receive;
mod send;
mod udp;

pub use receive::{Args as ReceiveArgs, run as receive};
pub use send::{Args as SendArgs, run as send};

use super::NetworkArgs;
use thalweg_sim::collection::{Background, OnOff, Topology, background_ends};

/// The receiver's TCP and UDP port. Traffic classes of topologies refer to it.
const PORT: u16 = 9100;

/// Which flows there are.
#[derive(Clone, Copy, Debug, clap::Args)]
struct FlowArgs {
    #[command(flatten)]
    scene: NetworkArgs,
    /// Number of flows; a quarter crosses the first peering point
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1000))]
    flows: u32,
}

/// The ratio of the flows over the first peering point to those over the second: that of the paper's main result.
const RATIO: (u32, u32) = (1, 3);

/// A flow between interfaces `bg-b:from` and `bg-a:to`.
#[derive(Clone, Copy, Debug)]
struct BackgroundFlow {
    from: usize,
    to: usize,
    /// A UDP stream at the pace of the scene; `None`: an infinite download.
    stream: Option<OnOff>,
}

impl FlowArgs {
    fn draw_flows(&self) -> Vec<BackgroundFlow> {
        let NetworkArgs { seed, pace } = self.scene;
        let net = Topology::transit_stub(seed);
        let (a, b) = (background_ends(&net, 0), background_ends(&net, 1));
        let place = |nodes: &[usize], node| nodes.iter().position(|n| *n == node).unwrap_or(0);
        let faster = |s: OnOff| OnOff { rate: s.rate * pace, on: s.on / pace, off: s.off / pace };
        let drawn = Background::new(&net, seed, self.flows, RATIO).drawn();
        let flow = |flow: &thalweg_sim::collection::DrawnFlow| BackgroundFlow {
            from: place(&b, flow.from),
            to: place(&a, flow.to),
            stream: flow.stream.map(faster),
        };
        drawn.iter().map(flow).collect()
    }
}

/// The lab's name of an interface of `bg-a` or `bg-b`.
fn interface(host: &str, at: usize) -> String {
    if at == 0 { host.to_owned() } else { format!("{host}.wan{at}") }
}
