//! `train-sink`: receives the datagrams of measurements and analyses them.
//!
//! A TCP control connection on the same port carries the plan and the report. Measurements are served one after the
//! other.

use super::{
    arrivals::DatagramArrivals,
    control::Control,
    dispersion, losses, net, output, sys,
    wire::{DatagramPlan, ReportKind, SourceFinished, SyncMessage},
};
use anyhow::{Context, bail};
use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    time::{Duration, Instant},
};
use thalweg_console::note;

/// The most datagrams of one measurement: 32 bytes are kept of each, 128 MB in all.
const PACKETS_MAX: u64 = 4_000_000;
/// A measurement fails if the source is silent for this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many ports to try. The system assigns UDP and TCP ports separately, so that the UDP port may be in use.
const PORT_TRIES: u32 = 32;

/// Arguments of `train-sink`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    at: net::Listening,
    /// End after this many measurements; 0: end only after --max
    #[arg(long, default_value_t = 0)]
    sessions: usize,
}

/// Serves until `--sessions` or `--max`; prints each measurement's report.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.at.max;
    let (listener, socket) = bind_pair(net::resolve(&args.at.listen)?)?;
    sys::stamp_datagrams(&socket).context("the kernel does not provide receive timestamps")?;
    output::print_ready(listener.local_addr()?)?;
    let mut sessions = 0;
    while let Some(stream) = net::accept_until(&listener, deadline)? {
        let served = Control::new(stream, PATIENCE).and_then(|c| serve(c, &socket));
        match served {
            Ok(report) => output::print_line(&report)?,
            Err(e) => note!("train-sink: {e:#}"),
        }
        sessions += 1;
        if sessions == args.sessions {
            break;
        }
    }
    Ok(())
}

/// A TCP listener and a UDP socket with the same port.
fn bind_pair(address: SocketAddr) -> anyhow::Result<(TcpListener, UdpSocket)> {
    let mut failure = None;
    for _ in 0..PORT_TRIES {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        match net::bind_udp(listener.local_addr()?) {
            Ok(socket) => return Ok((listener, socket)),
            Err(e) if address.port() == 0 => failure = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(failure.unwrap_or_else(|| anyhow::anyhow!("cannot bind {address}")))
}

fn serve(mut control: Control, socket: &UdpSocket) -> anyhow::Result<serde_json::Value> {
    let plan: DatagramPlan = control.receive()?;
    let packets = u64::from(plan.trains) * u64::from(plan.packets);
    if !(1..=PACKETS_MAX).contains(&packets) {
        bail!("a measurement has 1 to {PACKETS_MAX} datagrams, not {packets}");
    }
    // Discard datagrams that an earlier, aborted measurement left behind.
    DatagramArrivals::expecting(&plan).drain(socket, plan.session)?;
    control.send(&SyncMessage::Ready)?;
    let (arrivals, sent) = collect(&mut control, socket, &plan)?;
    let report = match plan.report {
        ReportKind::Trains => serde_json::to_value(dispersion::TrainReport::new(&plan, &arrivals)),
        ReportKind::Losses => {
            serde_json::to_value(losses::LossReport::new(sent.packets, &arrivals))
        }
    }?;
    control.send(&report)?;
    Ok(report)
}

/// Receives until the source has sent all datagrams and none has arrived for the settling time.
fn collect(
    control: &mut Control,
    socket: &UdpSocket,
    plan: &DatagramPlan,
) -> anyhow::Result<(DatagramArrivals, SourceFinished)> {
    let mut arrivals = DatagramArrivals::expecting(plan);
    let mut heard = Instant::now();
    let sent = loop {
        net::wait_readable(&[socket, control.socket()], heard + PATIENCE)?;
        if arrivals.drain(socket, plan.session)? {
            heard = Instant::now();
        }
        if net::wait_readable(&[control.socket()], Instant::now())? {
            break control.receive::<SourceFinished>()?;
        }
        if heard.elapsed() >= PATIENCE {
            bail!("no data arrived for {} s", PATIENCE.as_secs());
        }
    };
    heard = Instant::now();
    let settle = Duration::from_nanos(plan.settle_ns).min(PATIENCE);
    while heard.elapsed() < settle {
        net::wait_readable(&[socket], heard + settle)?;
        if arrivals.drain(socket, plan.session)? {
            heard = Instant::now();
        }
    }
    Ok((arrivals, sent))
}
