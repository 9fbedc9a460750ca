//! Sends all background flows.

use super::{BackgroundFlow, FlowArgs, PORT, interface, udp};
use crate::tool::{
    collection::resolve,
    net::{self, TcpOptions},
    tcp_source,
};
use anyhow::Context;
use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    thread,
    time::{Duration, Instant},
};
use thalweg_console::note;
use thalweg_sim::random;

/// Bytes per write.
const CHUNK: usize = 64 * 1024;
/// The write timeout, after which a blocked writer checks the deadline.
const WRITE_SLICE: Duration = Duration::from_millis(200);
/// The pause between a broken connection and the next one.
const AGAIN: Duration = Duration::from_millis(200);

/// Arguments of `collection background-send`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: FlowArgs,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = net::parse_span)]
    duration: Duration,
    /// UDP payload, bytes; the paper does not give it
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(16..=1400))]
    packet: u16,
}

/// A flow with its addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowEnds {
    pub number: u16,
    pub from: IpAddr,
    pub to: SocketAddr,
}

/// Sends for the given duration.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.duration;
    let flows = args.which.draw_flows();
    let mut threads = Vec::new();
    for (number, flow) in flows.iter().enumerate() {
        let placed = resolve_addresses(number, flow)?;
        let (stream, packet) = (flow.stream, usize::from(args.packet));
        let random = random::stream(args.which.scene.seed, "on and off", number as u64);
        threads.push(thread::spawn(move || match stream {
            None => download(placed, deadline),
            Some(stream) => udp::stream(placed, stream, packet, random, deadline),
        }));
    }
    if threads.is_empty() {
        thread::sleep(deadline.saturating_duration_since(Instant::now()));
    }
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("its thread panicked")));
        ended.context("a background flow failed")?;
    }
    Ok(())
}

fn resolve_addresses(number: usize, flow: &BackgroundFlow) -> anyhow::Result<FlowEnds> {
    let from = resolve(&interface("bg-b", flow.from), 0)?.ip();
    let to = resolve(&interface("bg-a", flow.to), PORT)?;
    Ok(FlowEnds { number: u16::try_from(number)?, from, to })
}

/// Sends an infinite download. A connection that breaks on its congested path is replaced.
fn download(flow: FlowEnds, deadline: Instant) -> anyhow::Result<()> {
    let options = TcpOptions { from: Some(flow.from), congestion: None };
    while Instant::now() < deadline {
        if let Err(e) = send_over_connection(flow, &options, deadline) {
            note!("background flow {}: {e:#}; retrying", flow.number);
            thread::sleep(AGAIN.min(deadline.saturating_duration_since(Instant::now())));
        }
    }
    Ok(())
}

fn send_over_connection(
    flow: FlowEnds,
    options: &TcpOptions,
    deadline: Instant,
) -> anyhow::Result<()> {
    let mut stream = net::connect_tcp(flow.to, options)?;
    stream.set_write_timeout(Some(WRITE_SLICE))?;
    stream.write_all(&flow.number.to_be_bytes())?;
    let chunk = vec![0x5a; CHUNK];
    while Instant::now() < deadline {
        tcp_source::write_some(&mut stream, &chunk)?;
    }
    net::reset(stream);
    Ok(())
}
