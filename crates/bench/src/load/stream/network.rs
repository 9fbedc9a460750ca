//! Fig. 15's network as a lab, with PEAKS of Fig. 16.

use super::Args;
use std::{fmt::Write as _, time::Duration};
use thalweg_units::Rate;

/// PEAKS: Mbit/s, and the part of the whole that each interval has. The paper gives the rates, and 240 s; the lengths are
/// lost with its figure: these are 40, 30, 40, 30, 30, 40 and 30 s.
const PEAKS: [(f64, f64); 7] =
    [(4.0, 40.0), (8.0, 30.0), (4.0, 40.0), (7.0, 30.0), (4.0, 30.0), (8.0, 40.0), (4.0, 30.0)];

/// The seconds of all of them.
const ALL: f64 = 240.0;

/// As in `load mgrp`: of the bytes, what packets of each length make.
const LENGTHS: [(u32, f64); 3] = [(1500, 0.89), (576, 0.08), (60, 0.03)];

/// Where nodes listen.
pub const NODE: u16 = 7373;

/// The bottleneck's half that streams, probes and cross traffic share.
pub const BOTTLENECK: &str = "b.fwd";

/// The bottleneck's rate, Mbit/s.
pub const RATE: f64 = 10.0;

/// The steps: since when, after the beginning, and Mbit/s.
pub fn steps(args: &Args) -> Vec<(Duration, f64)> {
    let taken = &PEAKS[..usize::from(args.peaks)];
    let (mut since, mut steps) = (0.0, Vec::new());
    for (mbps, seconds) in taken {
        steps.push((args.span.mul_f64(since / ALL), *mbps));
        since += seconds;
    }
    steps
}

/// How long it is measured.
pub fn span(args: &Args) -> Duration {
    let seconds: f64 = PEAKS.iter().take(args.peaks.into()).map(|(_, seconds)| seconds).sum();
    args.span.mul_f64(seconds / ALL)
}

/// The lab; cross traffic begins so long after it.
pub fn topology(args: &Args, begin: Duration) -> String {
    let delay = (args.rtt / 2).as_micros();
    let mut text = format!("seed = {}\ncongestion = \"cubic\"\nbin = \"100 ms\"\n", args.seed);
    for host in ["m3", "m5", "c1", "c2", "gs"] {
        _ = writeln!(text, "[host.{host}]");
    }
    _ = write!(
        text,
        "[link.a]\nrate = \"100 Mbit/s\"\nqueue = \"1 MB\"\n\
         [link.b]\nrate = \"10 Mbit/s\"\nqueue = \"75 kB\"\ndelay = \"{delay} us\"\n\
         [link.g]\nrate = \"100 Mbit/s\"\nqueue = \"1 MB\"\ndelay = \"5 ms\"\n\
         [link.h]\nrate = \"100 Mbit/s\"\nqueue = \"1 MB\"\ndelay = \"5 ms\"\n\
         [[path]]\nfrom = \"m3\"\nto = \"m5\"\nlinks = [\"a\", \"b\"]\n\
         [[path]]\nfrom = \"c1\"\nto = \"c2\"\nlinks = [\"b\"]\n\
         [[path]]\nfrom = \"gs\"\nto = \"m3\"\nlinks = [\"g\"]\n\
         [[path]]\nfrom = \"gs\"\nto = \"m5\"\nlinks = [\"h\"]\n\
         [[class]]\nname = \"node\"\nprotocol = \"udp\"\nport = {NODE}\n"
    );
    for (size, share) in LENGTHS {
        let step = |(since, mbps): (Duration, f64)| {
            let rate = Rate::from_mbps(mbps * share);
            format!("[\"{} ms\", \"{} bit/s\"]", since.as_millis(), rate.as_bps())
        };
        let steps: Vec<String> = steps(args).into_iter().map(step).collect();
        let (begin, end) = (begin.as_millis(), (begin + span(args)).as_millis());
        _ = write!(
            text,
            "[[cross]]\nlink = \"{BOTTLENECK}\"\nkind = \"steps\"\nsize = \"{size} B\"\nstart = \"{begin} ms\"\n\
             stop = \"{end} ms\"\nsteps = [{}]\n",
            steps.join(", ")
        );
    }
    text
}
