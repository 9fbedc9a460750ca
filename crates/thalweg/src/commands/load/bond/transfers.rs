//! Transfers of some size, each a stream of its own: from before it is opened until its last byte is there.

use super::{
    super::{
        pattern::{CHUNK, Pattern},
        report::Report,
        server,
    },
    near::{Near, NearArgs},
};
use anyhow::{Context as _, ensure};
use std::time::Duration;
use thalweg_units::{ByteSize, parse_duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep},
};

/// Arguments of `thalweg load bond transfers`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    near: NearArgs,
    /// Of which sizes
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',')]
    sizes: Vec<ByteSize>,
    /// So many of each
    #[arg(long, default_value_t = 5)]
    count: usize,
    /// Between two of them
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse_duration)]
    pause: Duration,
}

/// Measures, and prints the report: of each size the median time.
///
/// # Errors
/// When a stream breaks, or carries a wrong byte.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let near = args.near.near().await?;
    let (pattern, mut report) = (Pattern::new(), Report::default());
    for size in &args.sizes {
        let mut times = Vec::with_capacity(args.count);
        for _ in 0..args.count {
            sleep(args.pause).await;
            times.push(transfer(&near, &pattern, size.as_bytes()).await?);
        }
        times.sort();
        let median = times.get(times.len() / 2).context("--count is 0")?;
        report.add(format!("time_{}", size.as_bytes()), "ms", median.as_secs_f64() * 1e3);
    }
    near.tell();
    report.print().context("cannot print the report")
}

async fn transfer(near: &Near, pattern: &Pattern, size: u64) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut connection = near.connect().await?;
    let mut ask = vec![server::SIZED];
    ask.extend(size.to_be_bytes());
    connection.write_all(&ask).await?;
    connection.flush().await?;
    let (mut buffer, mut position) = (vec![0; CHUNK], 0);
    while position < size {
        let count = connection.read(&mut buffer).await?;
        ensure!(count > 0, "the stream ended after {position} of {size} bytes");
        pattern.check(position, &buffer[..count])?;
        position += count as u64;
    }
    ensure!(position == size, "{position} bytes came of {size}");
    Ok(began.elapsed())
}
