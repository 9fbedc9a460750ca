//! `udp-echo` and `udp-ping`: measure round-trip times with kernel receive timestamps.

use super::{net, output, pace, statistics::Summary, sys, wire};
use anyhow::Context;
use serde::Serialize;
use std::{
    io,
    net::UdpSocket,
    time::{Duration, Instant},
};

/// The length of a ping's header: session, sequence number, and the echo's timestamps of arrival and departure, all u64
/// little-endian. The echo returns shorter datagrams unchanged.
const LEN: usize = 32;

/// Arguments of `udp-echo`.
#[derive(Debug, clap::Args)]
pub struct EchoArgs {
    #[command(flatten)]
    at: net::Listening,
}

/// Answers until `--max`.
pub fn run_echo(args: &EchoArgs) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.at.max;
    let socket = net::bind_udp(net::resolve(&args.at.listen)?)?;
    sys::stamp_datagrams(&socket).context("the kernel does not provide receive timestamps")?;
    output::print_ready(socket.local_addr()?)?;
    echo_until(&socket, deadline)
}

fn echo_until(socket: &UdpSocket, deadline: Instant) -> anyhow::Result<()> {
    let mut buffer = vec![0; 65_536];
    while Instant::now() < deadline {
        if net::wait_readable(&[socket], deadline)? {
            // A lost answer is part of what the other side measures.
            let _ = echo_one(socket, &mut buffer);
        }
    }
    Ok(())
}

/// Sends one datagram back with the timestamps of its arrival and departure, so that the time in this host can be
/// subtracted.
fn echo_one(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
    // There is only one reader, so the next call receives the datagram that was peeked at.
    let (_, from) = socket.peek_from(&mut [])?;
    let stamped = sys::recv_stamped(socket, buffer)?;
    let answer = &mut buffer[..stamped.len];
    if answer.len() >= LEN {
        let received = stamped.received_ns.unwrap_or_else(net::realtime_ns);
        answer[16..24].copy_from_slice(&received.to_le_bytes());
        answer[24..32].copy_from_slice(&net::realtime_ns().to_le_bytes());
    }
    socket.send_to(answer, from)
}

/// Arguments of `udp-ping`.
#[derive(Debug, clap::Args)]
pub struct PingArgs {
    /// Address of a `udp-echo`
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// Number of pings
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Interval between two pings
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = net::parse_span)]
    interval: Duration,
    /// Length of each IP packet, bytes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(100..=1500))]
    size: u32,
    /// An answer later than this counts as lost
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = net::parse_span)]
    timeout: Duration,
}

/// The report that `udp-ping` prints.
#[derive(Serialize)]
struct PingReport {
    sent: u32,
    lost: u32,
    /// Duplicates of answers.
    duplicated: u32,
    /// The time from just before the send call to the kernel's receive timestamp, less the echo's turnaround.
    rtt: Option<Summary>,
    /// The time in the echo from its receive timestamp to its send call.
    turnaround: Option<Summary>,
}

/// Sends the pings and prints a report.
pub fn run_ping(args: &PingArgs) -> anyhow::Result<()> {
    let to = net::resolve(&args.to)?;
    let socket = net::connect_udp(to)?;
    sys::stamp_datagrams(&socket).context("the kernel does not provide receive timestamps")?;
    pace::sharpen_timers();
    let size = args.size.saturating_sub(wire::overhead(to.is_ipv6())) as usize;
    let mut pings = PingSession::new(args.count, size.max(LEN));
    let start = Instant::now();
    for seq in 0..args.count {
        pings.send(&socket, seq)?;
        pings.listen(&socket, start + args.interval * (seq + 1))?;
    }
    pings.listen(&socket, Instant::now() + args.timeout)?;
    output::print_line(&pings.report(args))
}

/// The pings in flight and the answers so far.
struct PingSession {
    session: u64,
    payload: Vec<u8>,
    /// The time at which each ping was sent, ns.
    sent: Vec<u64>,
    /// Round-trip time and turnaround of each answered ping, ns.
    answers: Vec<Option<(u64, u64)>>,
    answered: u32,
    duplicated: u32,
}

impl PingSession {
    fn new(count: u32, payload: usize) -> Self {
        Self {
            session: net::realtime_ns(),
            payload: vec![0; payload],
            sent: Vec::with_capacity(count as usize),
            answers: vec![None; count as usize],
            answered: 0,
            duplicated: 0,
        }
    }

    fn send(&mut self, socket: &UdpSocket, seq: u32) -> anyhow::Result<()> {
        self.payload[..8].copy_from_slice(&self.session.to_le_bytes());
        self.payload[8..16].copy_from_slice(&u64::from(seq).to_le_bytes());
        self.sent.push(net::realtime_ns());
        match socket.send(&self.payload) {
            Ok(_) => Ok(()),
            Err(e) if net::is_transient(&e) => Ok(()),
            Err(e) => Err(e).context("cannot send a ping"),
        }
    }

    /// Receives answers until `deadline`, or until all have arrived.
    fn listen(&mut self, socket: &UdpSocket, deadline: Instant) -> anyhow::Result<()> {
        let all = self.answers.len() as u32;
        while Instant::now() < deadline && self.answered < all {
            if net::wait_readable(&[socket], deadline)? {
                self.receive(socket);
            }
        }
        Ok(())
    }

    fn receive(&mut self, socket: &UdpSocket) {
        let mut buffer = [0; LEN];
        // An error here is an ICMP error for an earlier ping, which counts as lost.
        let Ok(stamped) = sys::recv_stamped(socket, &mut buffer) else { return };
        if stamped.len < LEN {
            return;
        }
        let mut fields =
            buffer.chunks_exact(8).filter_map(|c| c.try_into().ok()).map(u64::from_le_bytes);
        let mut next = || fields.next().unwrap_or(0);
        let (session, seq, arrived, departed) = (next(), next() as usize, next(), next());
        let received = stamped.received_ns.unwrap_or_else(net::realtime_ns);
        let Some(sent) = self.sent.get(seq).filter(|_| session == self.session) else { return };
        if self.answers[seq].is_some() {
            self.duplicated += 1;
            return;
        }
        let turnaround = departed.saturating_sub(arrived);
        self.answers[seq] = Some((received.saturating_sub(sent + turnaround), turnaround));
        self.answered += 1;
    }

    fn report(&self, args: &PingArgs) -> PingReport {
        let limit = u64::try_from(args.timeout.as_nanos()).unwrap_or(u64::MAX);
        let timely: Vec<_> = self.answers.iter().flatten().filter(|a| a.0 <= limit).collect();
        PingReport {
            sent: args.count,
            lost: args.count - timely.len() as u32,
            duplicated: self.duplicated,
            rtt: Summary::from_samples("ms", timely.iter().map(|a| a.0 as f64 / 1e6).collect()),
            turnaround: Summary::from_samples(
                "us",
                timely.iter().map(|a| a.1 as f64 / 1e3).collect(),
            ),
        }
    }
}
