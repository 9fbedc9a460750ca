//! `train-source`: sends packet trains.

use super::{
    control::Control,
    net::{self, TcpOptions},
    output, pace,
    wire::{self, DatagramHeader, DatagramPlan, ReportKind, SourceFinished, SyncMessage},
};
use anyhow::Context;
use std::{
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

/// How long to wait on the control connection.
const PATIENCE: Duration = Duration::from_secs(90);

/// Arguments of `train-source`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sink's address
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// Gap between the packets of a train (default: sent back to back)
    #[arg(long, value_name = "TIME", value_parser = net::parse_span)]
    gap: Option<Duration>,
    /// Packets in a train
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    packets: u32,
    /// Length of each IP packet, bytes
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(100..=1500))]
    size: u32,
    /// Number of trains
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trains: u32,
    /// Gap from the end of a train to the start of the next one
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = net::parse_span)]
    interval: Duration,
    /// The sink ends the measurement this long after the last arrival
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = net::parse_span)]
    settle: Duration,
}

/// Sends the trains and prints the sink's report.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let to = net::resolve(&args.to)?;
    let plan = DatagramPlan {
        session: net::realtime_ns(),
        trains: args.trains,
        packets: args.packets,
        size: args.size,
        report: ReportKind::Trains,
        settle_ns: u64::try_from(args.settle.as_nanos())?,
    };
    pace::sharpen_timers();
    let mut outlet = Outlet::open(to, plan)?;
    for train in 0..args.trains {
        send_train(&mut outlet, train, args)?;
        pace::sleep_until(Instant::now() + args.interval);
    }
    outlet.finish()
}

fn send_train(outlet: &mut Outlet, train: u32, args: &Args) -> anyhow::Result<()> {
    let start = Instant::now();
    for seq in 0..args.packets {
        if let Some(gap) = args.gap {
            pace::wait_until(start + gap * seq);
        }
        outlet.send(train, seq)?;
    }
    Ok(())
}

/// The sending side of a measurement with datagrams.
pub struct Outlet {
    plan: DatagramPlan,
    control: Control,
    socket: UdpSocket,
    payload: Vec<u8>,
    sent: u64,
}

impl Outlet {
    /// Announces `plan` to the sink at `to`.
    ///
    /// # Errors
    /// If the sink does not answer or refuses.
    pub fn open(to: SocketAddr, plan: DatagramPlan) -> anyhow::Result<Self> {
        let mut control = Control::new(net::connect_tcp(to, &TcpOptions::default())?, PATIENCE)?;
        control.send(&plan)?;
        control.expect(SyncMessage::Ready)?;
        let payload = vec![0; plan.size.saturating_sub(wire::overhead(to.is_ipv6())) as usize];
        Ok(Self { plan, control, socket: net::connect_udp(to)?, payload, sent: 0 })
    }

    /// Sends packet `seq` of `train` now. A packet that a full local queue drops counts as sent, so that the sink
    /// misses it.
    ///
    /// # Errors
    /// If there is no route or the packet is too long.
    pub fn send(&mut self, train: u32, seq: u32) -> anyhow::Result<()> {
        let session = self.plan.session;
        DatagramHeader { session, train, seq, sent_ns: net::realtime_ns() }.put(&mut self.payload);
        self.sent += 1;
        match self.socket.send(&self.payload) {
            Ok(_) => Ok(()),
            Err(e) if net::is_transient(&e) => Ok(()),
            Err(e) => Err(e).context("cannot send a datagram"),
        }
    }

    /// Tells the sink that all datagrams are sent, and prints its report.
    ///
    /// # Errors
    /// If the sink does not answer.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.control.send(&SourceFinished { packets: self.sent })?;
        output::print_line(&self.control.receive::<serde_json::Value>()?)
    }
}
