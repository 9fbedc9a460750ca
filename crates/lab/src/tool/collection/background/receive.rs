//! Receives all background flows, and writes the bytes of each over time.

use super::{FlowArgs, PORT};
use crate::tool::{collection::now, net, output};
use anyhow::Context;
use serde_json::json;
use std::{
    fs::File,
    io::{BufWriter, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Bytes read and discarded at once.
const BUFFER: usize = 64 * 1024;

/// Arguments of `collection background-receive`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: FlowArgs,
    /// Writes JSON lines: `{"at": s since 1970, "bytes": [of each flow since the line before]}`; the
    /// first line is `{"streams": [whether a flow is a UDP stream]}`
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Interval between two lines
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = net::parse_span)]
    every: Duration,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = net::parse_span)]
    duration: Duration,
}

/// Bytes received by each flow.
type Counts = Arc<[AtomicU64]>;

/// Receives for the given duration.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.duration;
    let flows = args.which.draw_flows();
    let file =
        File::create(&args.out).with_context(|| format!("cannot write {}", args.out.display()))?;
    let mut out = BufWriter::new(file);
    let streams: Vec<bool> = flows.iter().map(|flow| flow.stream.is_some()).collect();
    writeln!(out, "{}", json!({ "streams": streams }))?;
    out.flush()?;
    let counts: Counts = flows.iter().map(|_| AtomicU64::new(0)).collect();
    let any = format!("0.0.0.0:{PORT}");
    let (listener, socket) = (net::listen(&any)?, net::bind_udp(any.parse::<SocketAddr>()?)?);
    output::print_ready(listener.local_addr()?)?;
    let (tcp, udp) = (counts.clone(), counts.clone());
    thread::spawn(move || accept_all(&listener, &tcp));
    thread::spawn(move || receive_all(&socket, &udp));
    let mut at = Instant::now();
    while at < deadline {
        at = (at + args.every).min(deadline);
        thread::sleep(at.saturating_duration_since(Instant::now()));
        let bytes: Vec<u64> = counts.iter().map(|c| c.swap(0, Ordering::Relaxed)).collect();
        writeln!(out, "{}", json!({ "at": now(), "bytes": bytes }))?;
        // Other programs read the file while it is written.
        out.flush()?;
    }
    Ok(())
}

/// Starts a thread for each connection. There are as many connections as TCP flows, and those that replace broken ones.
fn accept_all(listener: &TcpListener, counts: &Counts) {
    while let Ok((stream, _)) = listener.accept() {
        let counts = counts.clone();
        thread::spawn(move || count_bytes(stream, &counts));
    }
}

fn count_bytes(mut stream: TcpStream, counts: &Counts) {
    let mut number = [0; 2];
    if stream.read_exact(&mut number).is_err() {
        return;
    }
    let mut buffer = vec![0; BUFFER];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        add_bytes(counts, number, n);
    }
}

fn receive_all(socket: &UdpSocket, counts: &Counts) {
    let mut buffer = [0; 2048];
    while let Ok(n) = socket.recv(&mut buffer) {
        if n >= 2 {
            add_bytes(counts, [buffer[0], buffer[1]], n);
        }
    }
}

fn add_bytes(counts: &Counts, number: [u8; 2], bytes: usize) {
    if let Some(count) = counts.get(usize::from(u16::from_be_bytes(number))) {
        count.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
