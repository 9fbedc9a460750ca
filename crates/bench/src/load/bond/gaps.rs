//! Reads a stream until standard input ends and reports when no bytes arrived.

use super::{
    super::{
        pattern::{CHUNK, Pattern},
        process, server,
    },
    near::TransportArgs,
};
use anyhow::bail;
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Read as _, Write as _},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
};

/// Shorter pauses are not reported, because a chunk may take as long on a slow link.
pub const PAUSE: Duration = Duration::from_millis(20);

/// Arguments of `thalweg-bench load bond gaps`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    near: TransportArgs,
}

/// A line of the output. Times are in nanoseconds since 1970, so that another process on this machine can compare them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum GapLine {
    /// The first bytes have arrived.
    Begun,
    /// The stream broke; `at`: the time of the last byte.
    Broke { at: u64 },
    /// No byte arrived in this interval.
    Gap { from: u64, to: u64 },
    /// The stream ended: the number of right bytes and the memory of this process.
    Ended { bytes: u64, rss_kb: u64 },
    /// The answer to a line on standard input.
    Memory { rss_kb: u64 },
}

/// Reads the stream until standard input ends.
///
/// # Errors
/// When the stream breaks or carries a wrong byte.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let near = args.near.open().await?;
    let mut connection = near.connect().await?;
    connection.write_all(&[server::DOWNLOAD]).await?;
    connection.flush().await?;
    let (pattern, mut buffer, mut position) = (Pattern::new(), vec![0; CHUNK], 0);
    let mut asked = read_requests();
    let mut last = unix_nanos();
    loop {
        tokio::select! {
            read = connection.read(&mut buffer) => {
                let count = *read.as_ref().unwrap_or(&0);
                if count == 0 {
                    print_line(&GapLine::Broke { at: last })?;
                    read?;
                    bail!("the stream ended after {position} bytes");
                }
                pattern.check_whole(position, &buffer[..count])?;
                if position == 0 {
                    print_line(&GapLine::Begun)?;
                    last = unix_nanos();
                }
                position += count as u64;
                last = report_gap(last)?;
            }
            question = asked.recv() => match question {
                Some(()) => print_line(&GapLine::Memory { rss_kb: process::own_memory_kb() })?,
                None => break,
            },
        }
    }
    report_gap(last)?;
    near.check()?;
    near.print_links();
    print_line(&GapLine::Ended { bytes: position, rss_kb: process::own_memory_kb() })
}

/// Sends a message for each piece of input, until standard input ends.
fn read_requests() -> mpsc::Receiver<()> {
    let (tell, asked) = mpsc::channel(8);
    thread::spawn(move || {
        let mut word = [0; 64];
        while matches!(io::stdin().lock().read(&mut word), Ok(1..)) {
            if tell.blocking_send(()).is_err() {
                return;
            }
        }
    });
    asked
}

fn report_gap(last: u64) -> anyhow::Result<u64> {
    let now = unix_nanos();
    if u128::from(now.saturating_sub(last)) >= PAUSE.as_nanos() {
        print_line(&GapLine::Gap { from: last, to: now })?;
    }
    Ok(now)
}

/// Nanoseconds since 1970.
pub fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn print_line(line: &GapLine) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout().lock(), "{}", serde_json::to_string(line)?)?)
}
