//! `udp-blast`: sends datagrams at a constant rate to count losses.

use super::{
    net, pace,
    train::Outlet,
    wire::{DatagramPlan, ReportKind},
};
use anyhow::bail;
use std::time::{Duration, Instant};
use thalweg_units::{ByteSize, Rate};

/// The most datagrams sent after a late wake-up. The rest is left to the next wake-up, so that a stalled host does not
/// send a burst into the first queue.
const BATCH_MAX: u32 = 32;
/// The shortest time between wake-ups.
const TICK: Duration = Duration::from_millis(1);

/// Arguments of `udp-blast`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sink's address
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// Rate of IP packets, as "10 Mbit/s"
    #[arg(long)]
    rate: Rate,
    /// Length of each IP packet, bytes
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(100..=1500))]
    size: u32,
    /// Duration
    #[arg(long = "for", value_name = "TIME", value_parser = net::parse_span)]
    duration: Duration,
    /// The sink ends the measurement this long after the last arrival
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = net::parse_span)]
    settle: Duration,
}

/// Sends the datagrams and prints the sink's report.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let to = net::resolve(&args.to)?;
    let gap = args.rate.time_for(ByteSize::from_bytes(u64::from(args.size)));
    let packets = args.duration.as_nanos() / gap.as_nanos().max(1);
    if args.rate == Rate::ZERO || packets == 0 {
        bail!("at this --rate no packet is due within --for; increase one of them");
    }
    let Ok(packets) = u32::try_from(packets) else {
        bail!("{packets} datagrams are too many for one measurement");
    };
    let plan = DatagramPlan {
        session: net::realtime_ns(),
        trains: 1,
        packets,
        size: args.size,
        report: ReportKind::Losses,
        settle_ns: u64::try_from(args.settle.as_nanos())?,
    };
    pace::sharpen_timers();
    send_paced(Outlet::open(to, plan)?, packets, gap)
}

fn send_paced(mut outlet: Outlet, packets: u32, gap: Duration) -> anyhow::Result<()> {
    let (start, mut next) = (Instant::now(), 0);
    while next < packets {
        let due = (start.elapsed().as_nanos() / gap.as_nanos().max(1) + 1).min(u128::from(packets));
        let end = (due as u32).min(next + BATCH_MAX);
        for seq in next..end {
            outlet.send(0, seq)?;
        }
        next = end;
        pace::sleep_until((start + gap * next).max(Instant::now() + TICK));
    }
    outlet.finish()
}
