//! Generates the paper's load (DBAS §IV-A), small and large connections that arrive by Poisson processes, and measures
//! their total throughput.

use super::{
    super::{
        pattern::{CHUNK, Pattern},
        report::Report,
        server,
    },
    near::{NearTransport, TransportArgs},
};
use anyhow::{Context as _, ensure};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use thalweg_units::{ByteSize, Rate, parse_duration};
use thalweg_wire::Destination;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// The share of a link's capacity that is left for data: 1448 of 1500 bytes of each packet.
pub const DATA: f64 = 1448.0 / 1500.0;

/// For this long connections arrive and end before the batch, so that schedulers know the interfaces and applications.
const TRAINS: Duration = Duration::from_secs(2);

/// Arguments of `thalweg-bench load bond mix`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    near: TransportArgs,
    /// Destination of large connections, the port of another application (default: that of small ones)
    #[arg(long, value_name = "ADDR:PORT")]
    large_to: Option<Destination>,
    /// Mean number of small connections per second
    #[arg(long, default_value_t = 13.0)]
    small: f64,
    /// Mean number of large connections per second
    #[arg(long, default_value_t = 1.0)]
    large: f64,
    /// Bytes of a small connection
    #[arg(long, value_name = "SIZE", default_value = "22380 B")]
    small_size: ByteSize,
    /// Bytes of a large connection
    #[arg(long, value_name = "SIZE", default_value = "285 kB")]
    large_size: ByteSize,
    /// Add one connection that lasts from the beginning to the end
    #[arg(long)]
    long: bool,
    /// Time at the start that is not measured
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    warmup: Duration,
    /// Measured time
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    span: Duration,
    /// First measure a batch of connections that arrive within this time, until the last one has ended
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    batch: Option<Duration>,
    /// The sum of the links' rates
    #[arg(long, value_name = "RATE")]
    sum: Option<Rate>,
    /// Seed of the arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Added to the seed, so that the arrivals of hosts differ
    #[arg(long, default_value = "")]
    salt: String,
}

/// A kind of connections.
#[derive(Clone)]
struct ConnectionKind {
    to: Option<Destination>,
    /// The size in bytes; `None`: unlimited.
    size: Option<u64>,
}

/// Counts over all connections.
#[derive(Default)]
struct MixCounts {
    bytes: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    refused: AtomicU64,
}

/// The throughput of the two parts of a measurement, Mbit/s.
struct Throughput {
    /// The throughput within the window, while connections continue to arrive.
    window: f64,
    /// The throughput of the batch, from the beginning of its arrivals to its last byte.
    batch: Option<f64>,
}

/// Measures and prints the report.
///
/// # Errors
/// When the path cannot be set up or a byte is wrong.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let salt = args.salt.bytes().fold(0u64, |sum, byte| sum * 257 + u64::from(byte));
    let mut load = MixedLoad {
        near: Arc::new(args.near.open().await?),
        counts: Arc::default(),
        pattern: Arc::new(Pattern::new()),
        rng: Xoshiro256PlusPlus::seed_from_u64(args.seed ^ salt << 20),
        all: JoinSet::new(),
    };
    // The window leaves unfinished connections behind, so it comes last.
    let batch = match args.batch {
        Some(span) => {
            load.measure_batch(args, TRAINS).await?;
            Some(load.measure_batch(args, span).await?)
        }
        None => None,
    };
    let window = load.measure_window(args).await?;
    report(args, &Throughput { window, batch }, &load.counts)
        .print()
        .context("cannot print the report")
}

/// The connections and the state that they share.
struct MixedLoad {
    near: Arc<NearTransport>,
    counts: Arc<MixCounts>,
    pattern: Arc<Pattern>,
    rng: Xoshiro256PlusPlus,
    all: JoinSet<anyhow::Result<()>>,
}

impl MixedLoad {
    /// Measures the throughput within the window after the warm-up, while connections continue to arrive. Then breaks
    /// off all connections.
    async fn measure_window(&mut self, args: &Args) -> anyhow::Result<f64> {
        if args.long {
            self.start(&ConnectionKind { to: args.large_to.clone(), size: None });
        }
        let began = Instant::now();
        let from = began + args.warmup;
        let mut arrivals = ArrivalTimes::new(args, began, &mut self.rng);
        self.start_arrivals(&mut arrivals, from).await?;
        let (since, before) = (Instant::now(), self.bytes());
        self.start_arrivals(&mut arrivals, from + args.span).await?;
        let rate = mbps(self.bytes() - before, since);
        self.all.shutdown().await;
        Ok(rate)
    }

    /// Measures the throughput of connections that arrive within `span`, from now until the last one has ended.
    async fn measure_batch(&mut self, args: &Args, span: Duration) -> anyhow::Result<f64> {
        let (began, before) = (Instant::now(), self.bytes());
        let mut arrivals = ArrivalTimes::new(args, began, &mut self.rng);
        self.start_arrivals(&mut arrivals, began + span).await?;
        while let Some(ended) = self.all.join_next().await {
            ended.context("a connection's task panicked")??;
        }
        Ok(mbps(self.bytes() - before, began))
    }

    fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// Starts the connections that arrive before `until`.
    async fn start_arrivals(
        &mut self,
        arrivals: &mut ArrivalTimes,
        until: Instant,
    ) -> anyhow::Result<()> {
        loop {
            let due = arrivals.due().min(until);
            tokio::select! {
                () = sleep_until(due) => {}
                Some(ended) = self.all.join_next() => {
                    ended.context("a connection's task panicked")??;
                    continue;
                }
            }
            if due == until {
                return Ok(());
            }
            let kind = arrivals.take_next(&mut self.rng);
            self.start(&kind);
        }
    }

    fn start(&mut self, kind: &ConnectionKind) {
        let (near, kind) = (Arc::clone(&self.near), kind.clone());
        let (counts, pattern) = (Arc::clone(&self.counts), Arc::clone(&self.pattern));
        self.all.spawn(async move { connection(&near, &kind, &counts, &pattern).await });
    }
}

fn mbps(bytes: u64, since: Instant) -> f64 {
    bytes as f64 * 8e-6 / since.elapsed().as_secs_f64()
}

fn report(args: &Args, throughput: &Throughput, counts: &MixCounts) -> Report {
    let mut report = Report::default();
    report.add("throughput", "Mbit/s", throughput.window);
    if let Some(batch) = throughput.batch {
        report.add("batch", "Mbit/s", batch);
    }
    if let Some(sum) = args.sum {
        report.add("of_sum", "ratio", throughput.window / (sum.as_mbps() * DATA));
    }
    for (name, count) in
        [("begun", &counts.begun), ("ended", &counts.ended), ("refused", &counts.refused)]
    {
        report.add(name, "connections", count.load(Ordering::Relaxed) as f64);
    }
    report
}

/// The arrival times of both kinds of connections: two Poisson processes.
struct ArrivalTimes(Vec<Process>);

/// The arrivals of one kind: their rate per second, and the time of the next one.
struct Process {
    rate: f64,
    kind: ConnectionKind,
    next: Instant,
}

impl ArrivalTimes {
    fn new(args: &Args, began: Instant, rng: &mut Xoshiro256PlusPlus) -> Self {
        let small = ConnectionKind { to: None, size: Some(args.small_size.as_bytes()) };
        let large =
            ConnectionKind { to: args.large_to.clone(), size: Some(args.large_size.as_bytes()) };
        let mut process = |(rate, kind): (f64, ConnectionKind)| Process {
            rate,
            kind,
            next: began + draw_wait(rate, rng),
        };
        Self([(args.small, small), (args.large, large)].map(&mut process).into())
    }

    /// The time of the next connection.
    fn due(&self) -> Instant {
        self.0[self.next_index()].next
    }

    /// Takes that connection and draws the time of the one after it.
    fn take_next(&mut self, rng: &mut Xoshiro256PlusPlus) -> ConnectionKind {
        let first = self.next_index();
        let process = &mut self.0[first];
        process.next += draw_wait(process.rate, rng);
        process.kind.clone()
    }

    fn next_index(&self) -> usize {
        usize::from(self.0[1].next < self.0[0].next)
    }
}

/// Draws the time until the next arrival, at most a day, which a rate of 0 yields.
fn draw_wait(rate: f64, rng: &mut Xoshiro256PlusPlus) -> Duration {
    let day = Duration::from_secs(86_400);
    let share = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    Duration::try_from_secs_f64(-(1.0 - share).ln() / rate).unwrap_or(day).min(day)
}

/// Runs one connection. A failure to connect is only counted, because the links are full.
async fn connection(
    near: &NearTransport,
    kind: &ConnectionKind,
    counts: &MixCounts,
    pattern: &Pattern,
) -> anyhow::Result<()> {
    counts.begun.fetch_add(1, Ordering::Relaxed);
    let Ok(mut connection) = near.connect_to(kind.to.as_ref()).await else {
        counts.refused.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    };
    let ask = match kind.size {
        None => vec![server::DOWNLOAD],
        Some(size) => [&[server::SIZED][..], &size.to_be_bytes()].concat(),
    };
    let size = kind.size.unwrap_or(u64::MAX);
    connection.write_all(&ask).await?;
    connection.flush().await?;
    let (mut buffer, mut position) = (vec![0; CHUNK], 0);
    while position < size {
        let count = connection.read(&mut buffer).await?;
        ensure!(count > 0, "a connection ended after {position} of {size} bytes");
        pattern.check_whole(position, &buffer[..count])?;
        position += count as u64;
        counts.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
    counts.ended.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_the_given_rate() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let sum: f64 = (0..10_000).map(|_| draw_wait(13.0, &mut rng).as_secs_f64()).sum();
        assert!((sum - 10_000.0 / 13.0).abs() < 30.0, "seed 7: {sum}");
        assert_eq!(draw_wait(0.0, &mut rng), Duration::from_secs(86_400));
    }
}
