//! Times transfers of given sizes, by default each on its own stream, from before the stream is opened to its last
//! byte.

use super::{
    super::{
        pattern::{CHUNK, Pattern},
        report::Report,
        server,
        server_dialer::Connection,
    },
    near::{NearTransport, TransportArgs},
};
use anyhow::{Context as _, ensure};
use std::time::Duration;
use thalweg_units::{ByteSize, parse_duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep},
};

/// Arguments of `thalweg-bench load bond transfers`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    near: TransportArgs,
    /// Sizes of the transfers
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',')]
    sizes: Vec<ByteSize>,
    /// Number of transfers of each size
    #[arg(long, default_value_t = 5)]
    count: usize,
    /// Pause between two transfers
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse_duration)]
    pause: Duration,
    /// Make all transfers over one connection, opened before
    #[arg(long)]
    kept: bool,
}

/// Measures and prints the report: the median time of each size.
///
/// # Errors
/// When a stream breaks or carries a wrong byte.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let near = args.near.open().await?;
    let (pattern, mut report) = (Pattern::new(), Report::default());
    let mut kept = match args.kept {
        true => Some(open_kept(&near).await?),
        false => None,
    };
    for size in &args.sizes {
        let mut times = Vec::with_capacity(args.count);
        for _ in 0..args.count {
            sleep(args.pause).await;
            let (began, size) = (Instant::now(), size.as_bytes());
            match &mut kept {
                Some(kept) => transfer(kept, &[], size, &pattern).await?,
                None => {
                    transfer(&mut near.connect().await?, &[server::SIZED], size, &pattern).await?
                }
            }
            times.push(began.elapsed());
        }
        times.sort();
        let median = times.get(times.len() / 2).context("--count must be above 0")?;
        report.add(format!("time_{}", size.as_bytes()), "ms", median.as_secs_f64() * 1e3);
    }
    near.print_links();
    report.print().context("cannot print the report")
}

/// Opens a connection for one transfer after the other.
async fn open_kept(near: &NearTransport) -> anyhow::Result<Connection> {
    let mut connection = near.connect().await?;
    connection.write_all(&[server::EACH]).await?;
    Ok(connection)
}

/// Asks for `size` bytes with the command `word` and the size, and reads them.
async fn transfer(
    connection: &mut Connection,
    word: &[u8],
    size: u64,
    pattern: &Pattern,
) -> anyhow::Result<()> {
    connection.write_all(&[word, &size.to_be_bytes()].concat()).await?;
    connection.flush().await?;
    let (mut buffer, mut position) = (vec![0; CHUNK], 0);
    while position < size {
        let count = connection.read(&mut buffer).await?;
        ensure!(count > 0, "the stream ended after {position} of {size} bytes");
        pattern.check_whole(position, &buffer[..count])?;
        position += count as u64;
    }
    ensure!(position == size, "{position} of {size} bytes arrived");
    Ok(())
}
