//! `thalweg proxy`: HTTP and SOCKS5 for this host's programs, over the best paths known.

mod keeper;
mod log;
mod memory;
mod start;
mod ways;

pub use log::{Format, Log};
pub use start::{Running, start};
pub use ways::PathArgs;

use super::signals::{INTERRUPTED, Signals};
use anyhow::Context as _;
use clap::builder::RangedU64ValueParser;
use serde_json::json;
use std::{
    io::{self, Write as _},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
};
use thalweg_console::note;
use thalweg_node::{
    proxy::{ProxyConfig, Summary},
    relay::raise_descriptor_limit,
};
use tokio::runtime::Runtime;

/// Arguments of `thalweg proxy`.
#[derive(clap::Args)]
pub struct Args {
    /// Loopback address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:3128", value_parser = parse_listen)]
    listen: SocketAddr,

    /// Programs' connections at a time; more wait
    #[arg(long, value_name = "N", default_value_t = ProxyConfig::MAX_CONNECTIONS as u64)]
    #[arg(value_parser = RangedU64ValueParser::<u64>::new().range(1..=1_000_000))]
    max_connections: u64,

    /// Tell of each request and tunnel when it has ended
    #[arg(short, long)]
    verbose: bool,

    /// Print what happens as JSON, one object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    paths: PathArgs,
}

/// Reads `--listen`: an address and a port, no name, so that nobody listens by a resolver's word.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDR:PORT, e.g. 127.0.0.1:3128 or [::1]:3128".to_owned())
}

impl Args {
    fn format(&self) -> Format {
        match (self.json, self.verbose) {
            (true, _) => Format::Json,
            (false, true) => Format::Lines,
            (false, false) => Format::Nothing,
        }
    }

    fn config(&self) -> ProxyConfig {
        let max_connections = usize::try_from(self.max_connections).unwrap_or(usize::MAX);
        ProxyConfig { max_connections, ..ProxyConfig::new(self.listen) }
    }
}

/// Runs the command: until SIGTERM or SIGINT, then drains; a second one ends it at once.
///
/// # Errors
/// When it cannot be done; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    raise_descriptor_limit();
    let (log, writer) = Log::start(args.format()).context("cannot start the log")?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let log = Arc::new(log);
    let summary = runtime.block_on(serve(&args, Arc::clone(&log)));
    // A look-up may hang for half a minute; nobody waits for its answer.
    runtime.shutdown_background();
    log.close();
    writer.finish();
    match (summary?, args.json) {
        (Some(summary), true) => say(&summary_event(&summary).to_string())?,
        (Some(summary), false) => note!("thalweg proxy: {}", in_words(&summary)),
        (None, _) => return Ok(ExitCode::from(INTERRUPTED)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Until it has drained; `None` if it was ended at once.
async fn serve(args: &Args, log: Arc<Log>) -> anyhow::Result<Option<Summary>> {
    let mut signals = Signals::watch()?;
    let note = |text: String| note!("thalweg proxy: {text}");
    let Running { proxy, mut keeper } = start(args.config(), &args.paths, log, &note).await?;
    print_ready(proxy.local_addr(), args.json)?;
    let (first, asked) = tokio::sync::oneshot::channel::<()>();
    // On a worker's thread: connections that it accepts need not be handed to another one.
    let mut serving = tokio::spawn(proxy.run(async { _ = asked.await }));
    tokio::select! {
        summary = &mut serving => return Ok(Some(summary?)),
        () = keeper.keep(&note) => {}
        () = signals.next() => drop(first),
    }
    note("draining; once more to stop at once".to_owned());
    let summary = tokio::select! {
        summary = &mut serving => Some(summary?),
        () = signals.next() => None,
    };
    keeper.save(&note).await;
    Ok(summary)
}

/// Prints the bound address for whoever started us; from here on programs are served.
fn print_ready(at: SocketAddr, as_json: bool) -> anyhow::Result<()> {
    let pac = format!("http://{at}/proxy.pac");
    match as_json {
        true => say(&json!({ "event": "ready", "listen": at.to_string(), "pac": pac }).to_string()),
        false => {
            note!("thalweg proxy: http_proxy=http://{at}, socks5h://{at}, or {pac}");
            say(&format!("ready {at}"))
        }
    }
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}

/// The counts, for people.
pub fn in_words(s: &Summary) -> String {
    let cut = if s.cut > 0 { format!(", {} cut", s.cut) } else { String::new() };
    format!(
        "{} connections; {} requests ({} in ranges over several paths), {} tunnels, {} refused{cut}; \
         {} by detours; {} sent, {} received",
        s.connections, s.requests, s.split, s.tunnels, s.refused, s.detoured, s.up, s.down
    )
}

fn summary_event(s: &Summary) -> serde_json::Value {
    json!({
        "event": "summary", "connections": s.connections, "requests": s.requests,
        "split": s.split, "tunnels": s.tunnels, "refused": s.refused, "detoured": s.detoured,
        "up_bytes": s.up.as_bytes(), "down_bytes": s.down.as_bytes(), "cut": s.cut,
    })
}
