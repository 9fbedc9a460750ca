//! `collection …`: data, background traffic and capacities for experiments with coordinated collection, in the network
//! of `[generate] kind = "collection"`.
//!
//! Source: Cheng et al., *Large-scale Data Collection: a Coordinated Approach* (INFOCOM 2004) §VI. The simulator's code
//! makes all random draws, so that a seed gives the same results in both.
//!
//! - [`data`]: the files of the seven sources;
//! - [`background`]: other traffic from domain B to domain A, and its goodput;
//! - [`capacity`]: the rate of one TCP connection between any two bistros.

mod background;
mod capacity;
mod data;

use anyhow::Context;
use std::{
    net::{SocketAddr, ToSocketAddrs},
    time::{SystemTime, UNIX_EPOCH},
};

/// `thalweg-lab tool collection …`
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    tool: CollectionTool,
}

#[derive(Debug, clap::Subcommand)]
enum CollectionTool {
    /// Write the sources' files
    Data(data::Args),
    /// Send all background flows, from host `bg-b`
    BackgroundSend(background::SendArgs),
    /// Receive and count them, on host `bg-a`
    BackgroundReceive(background::ReceiveArgs),
    /// Send and receive transfers for `capacity`, on each bistro
    CapacityServe(capacity::ServeArgs),
    /// Measure all ordered pairs of bistros, from any host; write them as CSV
    Capacity(capacity::MeasureArgs),
}

/// Runs one of the tools to its end.
///
/// # Errors
/// If the tool fails; the message names the address or path.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.tool {
        CollectionTool::Data(a) => data::run(a),
        CollectionTool::BackgroundSend(a) => background::send(a),
        CollectionTool::BackgroundReceive(a) => background::receive(a),
        CollectionTool::CapacityServe(a) => capacity::serve(a),
        CollectionTool::Capacity(a) => capacity::measure(a),
    }
}

/// Of which network and how fast.
#[derive(Clone, Copy, Debug, clap::Args)]
struct NetworkArgs {
    /// The topology's seed
    #[arg(long)]
    seed: u64,
    /// The topology's pace
    #[arg(long, default_value_t = 1.0)]
    pace: f64,
}

/// The IPv4 address of a host of the lab. The paper's packets have IPv4 headers.
fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let unknown = || format!("the lab has no host `{host}`");
    let mut found = (host, port).to_socket_addrs().with_context(unknown)?;
    found.find(SocketAddr::is_ipv4).with_context(unknown)
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
