//! `tcp-source`: sends flows for a given time and reports the goodput at the sink.

use super::{
    control::Control,
    net::{self, TcpOptions},
    output::{self, MeasuredValue},
    statistics::jain,
    sys,
    wire::{Greeting, SyncMessage, TcpCount, TcpPlan},
};
use anyhow::{Context, bail};
use serde::Serialize;
use std::{
    io::{ErrorKind, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};
use thalweg_units::Rate;

/// Bytes per write.
const CHUNK: usize = 128 * 1024;
/// The write timeout, after which a blocked writer checks the time.
const WRITE_SLICE: Duration = Duration::from_millis(50);
/// How long a flow with a rate waits if no bytes are due.
const STEP: Duration = Duration::from_millis(5);
/// How much longer than the measurement to wait on the control connection: it shares the queue of the path and may lose
/// packets.
const CONTROL_PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `tcp-source`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sink's address
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// Duration of sending
    #[arg(long = "for", value_name = "TIME", value_parser = net::parse_span)]
    duration: Duration,
    /// Time at the start that is not counted
    #[arg(long, value_name = "TIME", value_parser = net::parse_span)]
    warmup: Option<Duration>,
    /// Congestion control (default: that of the route or the kernel)
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Number of flows
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    flows: u16,
    /// Rate at which each flow has data to send, like a media stream (default: as fast as TCP allows)
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Local address to send from
    #[arg(long, value_name = "IP")]
    from: Option<IpAddr>,
    /// Width of the sink's bins
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = net::parse_span)]
    bin: Duration,
    /// Also print the bytes of each bin
    #[arg(long)]
    series: bool,
}

impl Args {
    fn plan(&self) -> anyhow::Result<TcpPlan> {
        if self.warmup.unwrap_or_default() + self.bin > self.duration {
            bail!("--for must be longer than --warmup by at least one --bin");
        }
        Ok(TcpPlan {
            session: net::realtime_ns() ^ u64::from(std::process::id()) << 40,
            flows: usize::from(self.flows),
            duration_ns: u64::try_from(self.duration.as_nanos())?,
            bin_ns: u64::try_from(self.bin.as_nanos())?,
        })
    }
}

/// Runs the measurement and prints a report.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let plan = args.plan()?;
    let to = net::resolve(&args.to)?;
    let options = TcpOptions { from: args.from, congestion: args.congestion.clone() };
    let mut control = open_control(to, &options, plan, args.duration)?;
    let flows = open_flows(to, &options, plan)?;
    control.send(&SyncMessage::Go)?;
    control.expect(SyncMessage::Started)?;
    let senders = send_all(flows, args.duration, args.rate)?;
    let count: TcpCount = control.receive()?;
    if count.bytes.len() != plan.flows || count.receive_buffers.len() != plan.flows {
        bail!("the number of flows that the sink reports differs from the number of flows sent");
    }
    control.send(&SyncMessage::Done)?;
    output::print_line(&SourceReport::new(args, senders, &count))
}

fn open_control(
    to: SocketAddr,
    options: &TcpOptions,
    plan: TcpPlan,
    duration: Duration,
) -> anyhow::Result<Control> {
    // Only the measured flows use the requested congestion control.
    let options = TcpOptions { congestion: None, ..options.clone() };
    let mut control = Control::new(net::connect_tcp(to, &options)?, duration + CONTROL_PATIENCE)?;
    control.send(&Greeting::Measure(plan))?;
    control.expect(SyncMessage::Ready)?;
    Ok(control)
}

fn open_flows(
    to: SocketAddr,
    options: &TcpOptions,
    plan: TcpPlan,
) -> anyhow::Result<Vec<TcpStream>> {
    let open = |flow| {
        let mut stream = net::connect_tcp(to, options)?;
        stream.write_all(&greeting(&Greeting::Flow { session: plan.session, flow })?)?;
        Ok(stream)
    };
    (0..plan.flows).map(open).collect()
}

/// Encodes the first line of a connection.
pub fn greeting(greeting: &Greeting) -> anyhow::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(greeting)?;
    line.push(b'\n');
    Ok(line)
}

fn send_all(
    flows: Vec<TcpStream>,
    duration: Duration,
    rate: Option<Rate>,
) -> anyhow::Result<Vec<SenderStatistics>> {
    let pace = RateSchedule { begin: Instant::now(), rate };
    let send = |flow| thread::spawn(move || send_until(flow, &pace, duration));
    let threads: Vec<_> = flows.into_iter().map(send).collect();
    let join =
        |t: thread::JoinHandle<_>| t.join().unwrap_or_else(|_| bail!("a flow's thread panicked"));
    threads.into_iter().map(join).collect()
}

/// The rate of a flow and the time at which it began.
#[derive(Clone, Copy)]
struct RateSchedule {
    begin: Instant,
    /// `None`: unlimited.
    rate: Option<Rate>,
}

impl RateSchedule {
    /// The bytes that are due now and not `sent` yet. Bytes that TCP did not accept in time stay due, as in a player's
    /// queue.
    fn due(&self, sent: u64) -> usize {
        let Some(rate) = self.rate else { return usize::MAX };
        let due = rate.as_bps() as f64 / 8.0 * self.begin.elapsed().as_secs_f64();
        (due as u64).saturating_sub(sent) as usize
    }
}

/// Sends for `duration`, samples the kernel's statistics of the flow while it is still running, and resets it.
fn send_until(
    mut stream: TcpStream,
    pace: &RateSchedule,
    duration: Duration,
) -> anyhow::Result<SenderStatistics> {
    stream.set_write_timeout(Some(WRITE_SLICE))?;
    let chunk = vec![0x5a; CHUNK];
    let mut sent = 0;
    while pace.begin.elapsed() < duration {
        let due = pace.due(sent).min(CHUNK);
        if due == 0 {
            thread::sleep(STEP);
            continue;
        }
        sent += write_some(&mut stream, &chunk[..due])
            .context("a flow broke during the measurement")? as u64;
    }
    let sender = SenderStatistics::sample(&stream);
    net::reset(stream);
    sender
}

/// Writes as much as fits within the stream's write timeout. Returns the number of bytes; a timeout counts as 0.
pub fn write_some(stream: &mut TcpStream, chunk: &[u8]) -> std::io::Result<usize> {
    match stream.write(chunk) {
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        other => other,
    }
}

/// The kernel's statistics of the sending side of a flow.
#[derive(Debug, Serialize)]
pub struct SenderStatistics {
    /// The congestion control in use.
    congestion_control: String,
    /// `SO_SNDBUF` as autotuned, bytes.
    send_buffer: usize,
    retransmitted_segments: u32,
    /// Data segments sent, including retransmitted ones.
    data_segments: u32,
    /// Bytes that the receiver acknowledged.
    pub acknowledged_bytes: u64,
    /// The smoothed round-trip time, µs.
    rtt_us: u32,
    /// The smallest round-trip time, µs.
    min_rtt_us: u32,
    /// The congestion window, segments.
    congestion_window: u32,
    /// Payload of a full segment, bytes.
    segment_bytes: u32,
    /// Share of the busy time in which the receiver's window was the limit.
    receive_window_limited: f64,
    /// Share of the busy time in which the send buffer was the limit.
    send_buffer_limited: f64,
}

impl SenderStatistics {
    /// Samples a running flow.
    pub fn sample(stream: &TcpStream) -> anyhow::Result<Self> {
        let info = sys::tcp_info(stream).context("the kernel does not provide TCP_INFO")?;
        let name = rustix::net::sockopt::tcp_congestion(stream)?;
        let share = |us: u64| {
            if info.tcpi_busy_time == 0 { 0.0 } else { us as f64 / info.tcpi_busy_time as f64 }
        };
        Ok(Self {
            congestion_control: name,
            send_buffer: socket2::SockRef::from(stream).send_buffer_size()?,
            retransmitted_segments: info.tcpi_total_retrans,
            data_segments: info.tcpi_data_segs_out,
            acknowledged_bytes: info.tcpi_bytes_acked,
            rtt_us: info.tcpi_rtt,
            min_rtt_us: info.tcpi_min_rtt,
            congestion_window: info.tcpi_snd_cwnd,
            segment_bytes: info.tcpi_snd_mss,
            receive_window_limited: share(info.tcpi_rwnd_limited),
            send_buffer_limited: share(info.tcpi_sndbuf_limited),
        })
    }
}

/// The report that `tcp-source` prints.
#[derive(Debug, Serialize)]
struct SourceReport {
    /// The goodput of all flows together.
    goodput: MeasuredValue,
    /// The interval of the goodput in whole bins, seconds since the start.
    from_s: f64,
    to_s: f64,
    /// Jain's index over the flows' goodputs.
    jain_index: MeasuredValue,
    flows: Vec<FlowReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bin_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct FlowReport {
    goodput: MeasuredValue,
    /// Bytes of all bins, including the warm-up.
    received_bytes: u64,
    receive_buffer: u64,
    #[serde(flatten)]
    sender: SenderStatistics,
    /// Bytes of each bin.
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Vec<u64>>,
}

impl SourceReport {
    fn new(args: &Args, senders: Vec<SenderStatistics>, count: &TcpCount) -> Self {
        let bin_s = count.plan.bin_ns as f64 / 1e9;
        let warmup = args.warmup.unwrap_or_default().as_secs_f64();
        let first = (warmup / bin_s).ceil() as usize;
        let bins = count.plan.bins() as usize;
        let seconds = bins.saturating_sub(first) as f64 * bin_s;
        let rate = |row: &Vec<u64>| row.iter().skip(first).sum::<u64>() as f64 * 8.0 / seconds;
        let rates: Vec<f64> = count.bytes.iter().map(rate).collect();
        let flow = |(i, sender): (usize, SenderStatistics)| FlowReport {
            goodput: MeasuredValue::new("bit/s", rates[i]),
            received_bytes: count.bytes[i].iter().sum(),
            receive_buffer: count.receive_buffers[i],
            sender,
            series: args.series.then(|| count.bytes[i].clone()),
        };
        Self {
            goodput: MeasuredValue::new("bit/s", rates.iter().sum::<f64>()),
            from_s: first as f64 * bin_s,
            to_s: bins as f64 * bin_s,
            jain_index: MeasuredValue::new("1", jain(&rates)),
            flows: senders.into_iter().enumerate().map(flow).collect(),
            bin_s: args.series.then_some(bin_s),
        }
    }
}
