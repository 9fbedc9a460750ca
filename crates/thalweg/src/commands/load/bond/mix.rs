//! The paper's load (DBAS §IV-A): small and large connections that arrive by a Poisson process, and what they get
//! through together.

use super::{
    super::{
        pattern::{CHUNK, Pattern},
        report::Report,
        server,
    },
    near::{Near, NearArgs},
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

/// What of a link is left for data: 1448 of 1500 bytes of each packet.
const DATA: f64 = 1448.0 / 1500.0;

/// Arguments of `thalweg load bond mix`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    near: NearArgs,
    /// Where large connections go, another application's port; absent: where small ones do
    #[arg(long, value_name = "ADDR:PORT")]
    large_to: Option<Destination>,
    /// Small connections a second, on average
    #[arg(long, default_value_t = 13.0)]
    small: f64,
    /// Large ones
    #[arg(long, default_value_t = 1.0)]
    large: f64,
    /// Bytes of a small connection
    #[arg(long, value_name = "SIZE", default_value = "22380 B")]
    small_size: ByteSize,
    /// Of a large one
    #[arg(long, value_name = "SIZE", default_value = "285 kB")]
    large_size: ByteSize,
    /// One more, from the beginning to the end
    #[arg(long)]
    long: bool,
    /// Not measured at first
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    warmup: Duration,
    /// Then measured
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    span: Duration,
    /// What the links carry together
    #[arg(long, value_name = "RATE")]
    sum: Option<Rate>,
    /// Of the arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Makes the arrivals of this host others than those of the next
    #[arg(long, default_value = "")]
    salt: String,
}

/// What one kind of connections is.
#[derive(Clone)]
struct Kind {
    to: Option<Destination>,
    /// Bytes; none: without end.
    size: Option<u64>,
}

/// What all connections count together.
#[derive(Default)]
struct Counts {
    bytes: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    refused: AtomicU64,
}

/// Measures, and prints the report.
///
/// # Errors
/// When there is no way, or a byte is wrong.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let near = Arc::new(args.near.near().await?);
    let (counts, pattern) = (Arc::new(Counts::default()), Arc::new(Pattern::new()));
    let salt = args.salt.bytes().fold(0u64, |sum, byte| sum * 257 + u64::from(byte));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(args.seed ^ salt << 20);
    let mut all = JoinSet::new();
    let start = |kind: &Kind, all: &mut JoinSet<anyhow::Result<()>>| {
        let (near, kind) = (Arc::clone(&near), kind.clone());
        let (counts, pattern) = (Arc::clone(&counts), Arc::clone(&pattern));
        all.spawn(async move { connection(&near, &kind, &counts, &pattern).await });
    };
    let small = Kind { to: None, size: Some(args.small_size.as_bytes()) };
    let large = Kind { to: args.large_to.clone(), size: Some(args.large_size.as_bytes()) };
    if args.long {
        start(&Kind { to: large.to.clone(), size: None }, &mut all);
    }
    let began = Instant::now();
    let (from, until) = (began + args.warmup, began + args.warmup + args.span);
    let mut kinds = [(args.small, small, began), (args.large, large, began)];
    kinds.iter_mut().for_each(|(rate, _, next)| *next += wait(*rate, &mut rng));
    let mut first = None;
    loop {
        let due = kinds.iter_mut().min_by_key(|(.., next)| *next).context("two kinds")?;
        let then = if first.is_none() { due.2.min(from) } else { due.2.min(until) };
        tokio::select! {
            () = sleep_until(then) => {}
            Some(ended) = all.join_next() => {
                ended.context("a connection's task died")??;
                continue;
            }
        }
        match () {
            () if due.2 <= then => {
                start(&due.1, &mut all);
                due.2 += wait(due.0, &mut rng);
            }
            () if first.is_none() => {
                first = Some((Instant::now(), counts.bytes.load(Ordering::Relaxed)));
            }
            () => break,
        }
    }
    let (since, before) = first.context("--warmup is over")?;
    let bytes = counts.bytes.load(Ordering::Relaxed) - before;
    let rate = bytes as f64 * 8e-6 / since.elapsed().as_secs_f64();
    report(args, rate, &counts).print().context("cannot print the report")
}

fn report(args: &Args, rate: f64, counts: &Counts) -> Report {
    let mut report = Report::default();
    report.add("throughput", "Mbit/s", rate);
    if let Some(sum) = args.sum {
        report.add("of_sum", "ratio", rate / (sum.as_mbps() * DATA));
    }
    for (name, count) in
        [("begun", &counts.begun), ("ended", &counts.ended), ("refused", &counts.refused)]
    {
        report.add(name, "connections", count.load(Ordering::Relaxed) as f64);
    }
    report
}

/// Until the next arrival; a rate of 0 has none within a day.
fn wait(rate: f64, rng: &mut Xoshiro256PlusPlus) -> Duration {
    let day = Duration::from_secs(86_400);
    let share = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    Duration::try_from_secs_f64(-(1.0 - share).ln() / rate).unwrap_or(day).min(day)
}

/// One connection. That it does not come about is counted: the links are full.
async fn connection(
    near: &Near,
    kind: &Kind,
    counts: &Counts,
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
        pattern.check(position, &buffer[..count])?;
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
    fn arrivals_are_as_many_as_they_should() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let sum: f64 = (0..10_000).map(|_| wait(13.0, &mut rng).as_secs_f64()).sum();
        assert!((sum - 10_000.0 / 13.0).abs() < 30.0, "seed 7: {sum}");
        assert_eq!(wait(0.0, &mut rng), Duration::from_secs(86_400));
    }
}
