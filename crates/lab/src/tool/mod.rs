//! Small programs that generate and measure traffic inside the lab's hosts.
//!
//! All use ordinary kernel sockets, so that they measure what any program experiences. Each tool ends by itself: it has
//! a deadline, and all its queues and tables are bounded. Servers print `{"ready":{"address":…}}` as soon as they
//! listen, so that no caller has to sleep; results are one JSON object per line.
//!
//! The process stays single-threaded until a tool starts; only `http` creates a tokio runtime.

mod arrivals;
mod blast;
mod collection;
mod control;
mod datagram_sink;
mod dispersion;
mod http;
mod losses;
mod net;
mod output;
mod pace;
mod ping;
mod relay_faults;
mod statistics;
mod sys;
mod tcp_flood;
mod tcp_sink;
mod tcp_source;
mod tcp_web;
mod train;
mod web_faults;
mod wire;

use std::process::ExitCode;

/// `thalweg-lab tool …`
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, clap::Subcommand)]
enum Tool {
    /// Receive and count what `tcp-source` and `tcp-flood` send
    TcpSink(tcp_sink::Args),
    /// Send TCP flows; print the goodput that the sink counted
    TcpSource(tcp_source::Args),
    /// Load a path with real TCP cross traffic for a bounded time
    TcpFlood(tcp_flood::Args),
    /// Load a path with short TCP flows that arrive at random, for a bounded time
    TcpWeb(tcp_web::Args),
    /// Answer `udp-ping`
    UdpEcho(ping::EchoArgs),
    /// Measure round-trip times with kernel receive stamps
    UdpPing(ping::PingArgs),
    /// Receive and analyse what `train-source` and `udp-blast` send
    #[command(visible_alias = "blast-sink")]
    TrainSink(datagram_sink::Args),
    /// Send packet trains; print their dispersion at the sink
    TrainSource(train::Args),
    /// Send datagrams at a rate; print how many were lost, and in what bursts
    UdpBlast(blast::Args),
    /// Serve a directory over HTTP/1.1: GET, HEAD, Range, If-Range, ETag, Last-Modified
    Http(http::Args),
    /// Serve a directory over HTTP/1.1 with the faults that a URL names
    WebFaults(web_faults::Args),
    /// Data, other traffic and capacities for experiments with collection from many hosts
    Collection(collection::Args),
    /// Relay by SOCKS5, and alter, withhold or cut off the relayed data
    RelayFaults(relay_faults::Args),
}

/// Runs one tool to its end.
///
/// # Errors
/// If the tool fails; the message names the address or path.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.tool {
        Tool::TcpSink(a) => tcp_sink::run(&a),
        Tool::TcpSource(a) => tcp_source::run(&a),
        Tool::TcpFlood(a) => tcp_flood::run(&a),
        Tool::TcpWeb(a) => tcp_web::run(&a),
        Tool::UdpEcho(a) => ping::run_echo(&a),
        Tool::UdpPing(a) => ping::run_ping(&a),
        Tool::TrainSink(a) => datagram_sink::run(&a),
        Tool::TrainSource(a) => train::run(&a),
        Tool::UdpBlast(a) => blast::run(&a),
        Tool::Http(a) => http::run(&a),
        Tool::WebFaults(a) => web_faults::run(&a),
        Tool::Collection(a) => collection::run(&a),
        Tool::RelayFaults(a) => relay_faults::run(&a),
    }?;
    Ok(ExitCode::SUCCESS)
}
