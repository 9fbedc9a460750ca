//! Measures the total throughput and the fairness of several clients that share this host's links; each is a member
//! with its own bond (DBAS §IV-C).

use super::{
    super::{
        pattern::{CHUNK, Pattern},
        report::Report,
        server,
        server_dialer::Connection,
    },
    members,
    mix::DATA,
    near::{self, NearTransport},
    serve::StripingArgs,
};
use anyhow::{Context as _, ensure};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use thalweg_net::{Dialer, Route, interfaces};
use thalweg_units::{Rate, parse_duration};
use thalweg_wire::Destination;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::sleep,
};

/// Arguments of `thalweg-bench load bond sharing`.
#[derive(clap::Args)]
pub struct Args {
    /// Address of the daemon; each client opens a bond with it
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "to", conflicts_with = "to")]
    bond: Option<Destination>,
    /// Address of the server of known bytes; the clients connect to it over the interfaces in turn
    #[arg(long, value_name = "ADDR:PORT")]
    to: Option<Destination>,
    /// Number of clients
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=members::MOST.into()))]
    clients: u8,
    /// Time at the start that is not measured
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = parse_duration)]
    warmup: Duration,
    /// Measured time
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    span: Duration,
    /// The sum of the links' rates
    #[arg(long, value_name = "RATE")]
    sum: Rate,
    #[command(flatten)]
    how: StripingArgs,
}

/// Measures and prints the report.
///
/// # Errors
/// When a client cannot connect, its stream breaks, or a byte is wrong.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let pattern = Arc::new(Pattern::new());
    let (mut all, mut counts) = (JoinSet::new(), Vec::new());
    for number in 0..args.clients {
        let (near, count) = (client(args, number).await?, Arc::new(AtomicU64::new(0)));
        counts.push(Arc::clone(&count));
        let pattern = Arc::clone(&pattern);
        all.spawn(async move {
            let ended = read(&near, &pattern, &count).await;
            ended.with_context(|| format!("client {}", number + 1))
        });
    }
    let now = || counts.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<u64>>();
    let measured = async {
        sleep(args.warmup).await;
        let before = now();
        sleep(args.span).await;
        now().iter().zip(before).map(|(now, before)| now - before).collect::<Vec<u64>>()
    };
    let each = tokio::select! {
        each = measured => each,
        Some(ended) = all.join_next() => {
            ended.context("a client's task panicked")??;
            anyhow::bail!("an endless stream ended");
        }
    };
    report(&each, args.span, args.sum).print().context("cannot print the report")
}

/// The transport of this client.
async fn client(args: &Args, number: u8) -> anyhow::Result<NearTransport> {
    if let Some(at) = &args.bond {
        return near::open_bond(at.clone(), &members::near_key(number), args.how.settings(), 1)
            .await;
    }
    let found = interfaces()?;
    let by =
        found.get(usize::from(number) % found.len().max(1)).context("there is no interface")?;
    let to = args.to.clone().context("--to is required")?;
    let route = Route::direct().by_interface(by.index);
    Ok(NearTransport::Tcp { dialer: Box::new(Dialer::new(near::options())), route, to })
}

/// Reads a stream without end.
async fn read(near: &NearTransport, pattern: &Pattern, count: &AtomicU64) -> anyhow::Result<()> {
    let mut connection: Connection = near.connect().await?;
    connection.write_all(&[server::DOWNLOAD]).await?;
    connection.flush().await?;
    let (mut buffer, mut position) = (vec![0; CHUNK], 0);
    loop {
        let read = connection.read(&mut buffer).await?;
        ensure!(read > 0, "the stream ended after {position} bytes");
        pattern.check(position, &buffer[..read])?;
        position += read as u64;
        count.fetch_add(read as u64, Ordering::Relaxed);
    }
}

fn report(each: &[u64], span: Duration, sum: Rate) -> Report {
    let mbps = |bytes: u64| bytes as f64 * 8e-6 / span.as_secs_f64();
    let all = mbps(each.iter().sum());
    let mut report = Report::default();
    report.add("throughput", "Mbit/s", all);
    report.add("of_sum", "ratio", all / (sum.as_mbps() * DATA));
    report.add("fairness", "ratio", fairness(each));
    report.add("least", "Mbit/s", mbps(each.iter().copied().min().unwrap_or_default()));
    report.add("most", "Mbit/s", mbps(each.iter().copied().max().unwrap_or_default()));
    report
}

/// Jain's index (DEC-TR-301): 1 if all have the same, 1/n if one has all.
fn fairness(each: &[u64]) -> f64 {
    let sum: f64 = each.iter().map(|bytes| *bytes as f64).sum();
    let squares: f64 = each.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
    sum.powi(2) / (each.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fairness_index_and_the_sums_are_reported() {
        assert_eq!((fairness(&[5, 5, 5, 5]), fairness(&[8, 0, 0, 0])), (1.0, 0.25));
        let result = report(&[1_000_000, 3_000_000], Duration::from_secs(1), Rate::from_mbps(32.0));
        let value = |name| result.value(name).and_then(serde_json::Value::as_f64);
        assert_eq!((value("throughput"), value("least")), (Some(32.0), Some(8.0)));
        assert!(value("of_sum") > Some(1.0), "headers are no data: {:?}", value("of_sum"));
    }
}
