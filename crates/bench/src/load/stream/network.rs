//! Fig. 15's network as a lab, with the cross traffic PEAKS of Fig. 16.

use super::Args;
use std::{fmt::Write as _, time::Duration};
use thalweg_units::Rate;

/// The intervals of PEAKS: Mbit/s and seconds. The paper gives the rates and the total of 240 s. Its figure with the
/// lengths is lost; of Fig. 17 to 19 the text (§5.2) says that cross traffic fills the link at 1270, that it is free in
/// [1300, 1350], and that streams had all their frames in [1400, 1425]. The other lengths are our choice.
const PEAKS: [(f64, f64); 7] =
    [(4.0, 30.0), (8.0, 30.0), (4.0, 50.0), (7.0, 40.0), (4.0, 35.0), (8.0, 30.0), (4.0, 25.0)];

/// Intervals with this rate of cross traffic or less have room for all streams, Mbit/s.
const FREE: f64 = 4.0;

/// The duration of all intervals, s.
const ALL: f64 = 240.0;

/// Packet lengths and their shares of the bytes, as in `load mgrp`.
const LENGTHS: [(u32, f64); 3] = [(1500, 0.89), (576, 0.08), (60, 0.03)];

/// The port of the nodes.
pub const NODE: u16 = 7373;

/// The direction of the bottleneck that streams, probes and cross traffic share.
pub const BOTTLENECK: &str = "b.fwd";

/// The bottleneck's rate, Mbit/s.
pub const RATE: f64 = 10.0;

/// A cycle of `--cycles`: Mbit/s and seconds.
const CYCLE: [(f64, f64); 2] = [(8.0, 15.0), (4.0, 15.0)];

/// The intervals of cross traffic without the times before and after it: Mbit/s and duration.
fn cross_traffic(args: &Args) -> Vec<(f64, Duration)> {
    let cycle = |(mbps, seconds): (f64, f64)| (mbps, Duration::from_secs_f64(seconds));
    let peak = |(mbps, seconds): &(f64, f64)| (*mbps, args.span.mul_f64(seconds / ALL));
    match args.cycles {
        Some(count) => (0..count).flat_map(|_| CYCLE).map(cycle).collect(),
        None => PEAKS.iter().take(args.peaks.into()).map(peak).collect(),
    }
}

/// The intervals of the measured part: Mbit/s of cross traffic and duration.
fn intervals(args: &Args) -> Vec<(f64, Duration)> {
    let quiet = |duration: Duration| (!duration.is_zero()).then_some((0.0, duration));
    quiet(args.before).into_iter().chain(cross_traffic(args)).chain(quiet(args.after)).collect()
}

/// The start of each of these intervals, and its rate in Mbit/s.
fn starts(intervals: Vec<(f64, Duration)>) -> Vec<(Duration, f64)> {
    let mut since = Duration::ZERO;
    let mut start = |duration| {
        let at = since;
        since += duration;
        at
    };
    intervals.into_iter().map(|(mbps, duration)| (start(duration), mbps)).collect()
}

/// The start of each interval of the measured part, and its cross traffic in Mbit/s.
pub fn steps(args: &Args) -> Vec<(Duration, f64)> {
    starts(intervals(args))
}

/// The times with room for all streams after each peak, s.
pub fn free_intervals(args: &Args) -> Vec<(f64, f64)> {
    let (steps, end) = (steps(args), span(args).as_secs_f64());
    let is_peak = |(_, mbps): &(Duration, f64)| *mbps > FREE;
    let begins = (1..steps.len()).filter(|n| is_peak(&steps[n - 1]) && !is_peak(&steps[*n]));
    let of = |n: usize| {
        let next = steps[n..].iter().find(|step| is_peak(step));
        (steps[n].0.as_secs_f64(), next.map_or(end, |(since, _)| since.as_secs_f64()))
    };
    begins.map(of).collect()
}

/// The begin of the first peak, s; `None` if the measured part begins with it or has none.
pub fn first_peak(args: &Args) -> Option<f64> {
    let steps = steps(args);
    let (since, _) = steps.iter().find(|(_, mbps)| *mbps > FREE)?;
    (!since.is_zero()).then_some(since.as_secs_f64())
}

/// The duration of the measured part.
pub fn span(args: &Args) -> Duration {
    intervals(args).iter().map(|(_, duration)| *duration).sum()
}

/// The lab's configuration; cross traffic begins `begin` after the lab.
pub fn topology(args: &Args, begin: Duration) -> String {
    let (delay, queue) = ((args.rtt / 2).as_micros(), &args.queue);
    let mut text = format!("seed = {}\ncongestion = \"cubic\"\nbin = \"100 ms\"\n", args.seed);
    for host in ["m3", "m5", "c1", "c2", "gs"] {
        _ = writeln!(text, "[host.{host}]");
    }
    _ = write!(
        text,
        "[link.a]\nrate = \"100 Mbit/s\"\nqueue = \"1 MB\"\n\
         [link.b]\nrate = \"10 Mbit/s\"\nqueue = \"{queue}\"\ndelay = \"{delay} us\"\n\
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
        let steps: Vec<String> = starts(cross_traffic(args)).into_iter().map(step).collect();
        let begin = begin + args.before;
        let length: Duration = cross_traffic(args).iter().map(|(_, duration)| *duration).sum();
        let (begin, end) = (begin.as_millis(), (begin + length).as_millis());
        _ = write!(
            text,
            "[[cross]]\nlink = \"{BOTTLENECK}\"\nkind = \"steps\"\nsize = \"{size} B\"\nstart = \"{begin} ms\"\n\
             stop = \"{end} ms\"\nsteps = [{}]\n",
            steps.join(", ")
        );
    }
    text
}
