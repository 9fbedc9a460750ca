//! Copies of Fig. 4's network as a lab.

use super::{Args, Cross};
use std::{fmt::Write as _, time::Duration};
use thalweg_units::Rate;

/// The rates of STEP, Mbit/s (§4.1).
pub const STEPS: [f64; 6] = [1.0, 3.0, 5.0, 6.0, 4.0, 2.0];

/// The lengths of STEP's packets and each length's share of the bytes. The paper replays a trace of a link over the
/// Pacific, which has the usual two or three lengths; `tcpreplay` sends them at a constant byte rate.
const LENGTHS: [(u32, f64); 3] = [(1500, 0.89), (576, 0.08), (60, 0.03)];

/// The nodes' port.
pub const NODE: u16 = 7373;

/// The port of WEB's sink.
pub const WEB: u16 = 5080;

/// The bottleneck's queue: 50 packets, as in Dummynet. The paper does not give its size.
const QUEUE: &str = "75 kB";

/// The names of a copy's hosts and of its bottleneck.
pub struct CopyNames {
    /// The host of the source, the tool and the node that sends trains.
    pub m3: String,
    /// The host of the other node.
    pub m5: String,
    /// The host from which WEB sends.
    pub c1: String,
    /// The host to which WEB sends.
    pub c2: String,
    /// The half link that source, probes and cross traffic share.
    pub bottleneck: String,
}

impl CopyNames {
    /// The names of a copy, counted from 0.
    pub fn for_copy(copy: u8) -> Self {
        let host = |name: &str| format!("{name}x{copy}");
        let [m3, m5, c1, c2] = ["m3", "m5", "c1", "c2"].map(host);
        Self { m3, m5, c1, c2, bottleneck: format!("b{copy}.fwd") }
    }
}

/// The topology of all copies, whose cross traffic begins `begin` after the lab's start.
pub fn topology(args: &Args, begin: Duration) -> String {
    let mut text = format!("seed = {}\ncongestion = \"cubic\"\nbin = \"100 ms\"\n", args.seed);
    for copy in 0..args.copies {
        add_copy(&mut text, args, copy, begin);
    }
    _ = write!(
        text,
        "[[class]]\nname = \"node\"\nprotocol = \"udp\"\nport = {NODE}\n\
         [[class]]\nname = \"web\"\nprotocol = \"tcp\"\nport = {WEB}\n"
    );
    text
}

fn add_copy(text: &mut String, args: &Args, copy: u8, begin: Duration) {
    let CopyNames { m3, m5, c1, c2, .. } = CopyNames::for_copy(copy);
    let delay = (args.rtt / 2).as_micros();
    for host in [&m3, &m5, &c1, &c2] {
        _ = writeln!(text, "[host.{host}]");
    }
    _ = write!(
        text,
        "[link.a{copy}]\nrate = \"100 Mbit/s\"\nqueue = \"1 MB\"\n\
         [link.b{copy}]\nrate = \"10 Mbit/s\"\nqueue = \"{QUEUE}\"\ndelay = \"{delay} us\"\n\
         [[path]]\nfrom = \"{m3}\"\nto = \"{m5}\"\nlinks = [\"a{copy}\", \"b{copy}\"]\n\
         [[path]]\nfrom = \"{c1}\"\nto = \"{c2}\"\nlinks = [\"b{copy}\"]\n"
    );
    if args.cross == Cross::Step {
        for (size, share) in LENGTHS {
            add_step(text, args, (copy, size, share), begin);
        }
    }
}

/// Adds STEP's packets of one length.
fn add_step(text: &mut String, args: &Args, (copy, size, share): (u8, u32, f64), begin: Duration) {
    let step = |(at, mbps): (usize, &f64)| {
        let (since, rate) = (args.step * at as u32, Rate::from_mbps(mbps * share));
        format!("[\"{} ms\", \"{} bit/s\"]", since.as_millis(), rate.as_bps())
    };
    let steps: Vec<String> = STEPS.iter().enumerate().map(step).collect();
    let (begin, end) = (begin.as_millis(), (begin + args.span()).as_millis());
    _ = write!(
        text,
        "[[cross]]\nlink = \"b{copy}.fwd\"\nkind = \"steps\"\nsize = \"{size} B\"\nstart = \"{begin} ms\"\n\
         stop = \"{end} ms\"\nsteps = [{}]\n",
        steps.join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::{
        super::{ProbingTool, RiderUse},
        *,
    };
    use thalweg_lab::topology::Topology;

    fn args(cross: Cross) -> Args {
        let second = Duration::from_secs(1);
        Args {
            tool: ProbingTool::Pk1,
            riders: RiderUse::On,
            cross,
            rtt: 40 * second / 1000,
            step: 10 * second,
            source: None,
            web: Rate::from_mbps(3.0),
            copies: 2,
            found: 9 * second,
            seed: 1,
            carrier: Vec::new(),
            patience: 60 * second,
        }
    }

    #[test]
    fn the_network_is_that_of_the_paper() {
        let text = topology(&args(Cross::Step), Duration::from_secs(9));
        let resolved = Topology::from_toml(&text).unwrap().resolve().unwrap();
        assert_eq!((resolved.hosts.len(), resolved.links.len()), (8, 8));
        let first = |name: &str| {
            resolved.hosts.iter().find(|host| host.name == name).unwrap().interfaces[0]
        };
        let rtt = resolved.rtt(first("m3x1"), first("m5x1"));
        assert_eq!(rtt, Some(Duration::from_millis(40)));
        assert_eq!(resolved.rtt(first("c1x1"), first("c2x1")), rtt);
        // Hosts of different copies have no path to each other.
        assert_eq!(resolved.rtt(first("m3x0"), first("m5x1")), None);
    }

    #[test]
    fn step_has_the_rates_of_figure_5() {
        let bytes: f64 = LENGTHS.iter().map(|(_, share)| share).sum();
        assert!((bytes - 1.0).abs() < 1e-9);
        let text = topology(&args(Cross::Step), Duration::from_secs(9));
        // 5 Mbit/s from 20 to 30 s, of which 0.89 are long packets.
        assert!(text.contains("[\"20000 ms\", \"4450000 bit/s\"]"), "{text}");
        assert!(text.contains("start = \"9000 ms\"\nstop = \"69000 ms\""), "{text}");
        assert!(!topology(&args(Cross::Web), Duration::ZERO).contains("[[cross]]"));
    }
}
