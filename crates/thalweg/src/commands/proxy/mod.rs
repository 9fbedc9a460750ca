//! `thalweg proxy`: serves HTTP and SOCKS5 to this host's programs, over the best known paths.

mod intercept;
mod interface_service;
mod log;
mod memory;
mod path_args;
mod start;
mod updater;

pub use log::{Format, Log};
pub use path_args::ProxyPathArgs;
pub use start::{Running, start};

use super::signals::Signals;
use anyhow::Context as _;
use clap::builder::RangedU64ValueParser;
use intercept::{PacketRules, keep};
use serde_json::json;
use std::{io, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};
use thalweg_base::descriptors::raise_descriptor_limit;
use thalweg_console::{note, say_line};
use thalweg_proxy::{ProxyConfig, RedirectSource, Summary};
use tokio::{runtime::Runtime, time::timeout};

/// How long ending may take after the second signal.
const END_TIMEOUT: Duration = Duration::from_millis(500);

const HELP: &str = "\
Serves HTTP and SOCKS5 on one loopback port, over the direct path and the mesh's relays. Without a
mesh it uses the direct path alone.

  thalweg proxy                                      # HTTP and SOCKS5 on 127.0.0.1:3128
  export http_proxy=http://127.0.0.1:3128 https_proxy=http://127.0.0.1:3128
  curl -x socks5h://127.0.0.1:3128 https://example.org/
  chromium --proxy-pac-url=http://127.0.0.1:3128/proxy.pac
  thalweg proxy --listen 127.0.0.1:0 --json | jq .   # a free port; events as JSON
  sudo thalweg proxy --transparent                   # also for programs without proxy support

`thalweg run CMD` gives one command a proxy of its own. On Ctrl-C or SIGTERM, requests in progress
get 10 s to end; a second signal ends the proxy at once.

Environment: THALWEG_STATE, XDG_STATE_HOME and HOME determine the state directory (--state);
XDG_CACHE_HOME and HOME the history's place without one. http_proxy and the like are ignored.

Exit codes: 0 ended normally; 1 cannot start, e.g. because the port is taken; 2 wrong usage;
130 ended at once.";

/// Arguments of `thalweg proxy`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Loopback address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:3128", value_parser = parse_listen)]
    listen: SocketAddr,

    /// The most connections of programs at a time; more must wait
    #[arg(long, value_name = "N", default_value_t = ProxyConfig::MAX_CONNECTIONS as u64)]
    #[arg(value_parser = RangedU64ValueParser::<u64>::new().range(1..=1_000_000))]
    max_connections: u64,

    /// Intercept all TCP connections of this host's programs by nftables; needs root. The rules
    /// disappear with the proxy, however it ends
    #[arg(long)]
    transparent: bool,

    /// Report each request and tunnel when it has ended
    #[arg(short, long)]
    verbose: bool,

    /// Print events as JSON, one object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    paths: ProxyPathArgs,
}

/// Parses `--listen`: an address and a port. Names are refused, so that no resolver decides who can connect.
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
        let redirect_source =
            if self.transparent { RedirectSource::Rules } else { RedirectSource::None };
        ProxyConfig { max_connections, redirect_source, ..ProxyConfig::new(self.listen) }
    }
}

/// Runs the command until SIGTERM or SIGINT, then drains connections; a second signal ends it at once.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    raise_descriptor_limit();
    let (log, writer) = Log::start(args.format()).context("cannot start the log")?;
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let log = Arc::new(log);
    let summary = runtime.block_on(serve(&args, Arc::clone(&log)));
    // A name lookup may hang for half a minute; its answer is not waited for.
    runtime.shutdown_background();
    log.close();
    writer.finish();
    let ServeOutcome { summary, in_order } = summary?;
    match (summary, args.json) {
        (Some(summary), true) => say_line(summary_event(&summary))?,
        (Some(summary), false) => note!("thalweg: {}", in_words(&summary)),
        (None, _) => {}
    }
    Ok(if in_order { ExitCode::SUCCESS } else { ExitCode::from(thalweg_console::INTERRUPTED) })
}

/// How the proxy ended.
struct ServeOutcome {
    /// `None` if it was ended at once, before it could count.
    summary: Option<Summary>,
    in_order: bool,
}

/// Serves until it has drained, or was ended at once.
async fn serve(args: &Args, log: Arc<Log>) -> anyhow::Result<ServeOutcome> {
    let mut signals = Signals::watch()?;
    let note = |text: String| note!("thalweg: {text}");
    let Running { proxy, mut updater } = start(args.config(), &args.paths, log, &note).await?;
    let led = proxy.redirect_ports().map(|ports| PacketRules::begin(ports, &note));
    let mut led = led.transpose()?;
    print_ready(proxy.local_addr(), args.json)?;
    let cutter = proxy.cutter();
    let (first, asked) = tokio::sync::oneshot::channel::<()>();
    // On a worker thread, so that accepted connections need not be handed to another thread.
    let mut serving = tokio::spawn(proxy.run(async { _ = asked.await }));
    let failed = tokio::select! {
        summary = &mut serving => return Ok(ServeOutcome { summary: Some(summary?), in_order: true }),
        () = updater.keep(&note) => None,
        failed = keep(led.as_mut(), &note) => Some(failed),
        () = signals.next() => None,
    };
    drop(first);
    // From now on new connections bypass the proxy.
    drop(led);
    note("draining: waiting for open connections; interrupt again to stop at once".to_owned());
    let ended = tokio::select! {
        summary = &mut serving => ServeOutcome { summary: Some(summary?), in_order: true },
        () = signals.next() => {
            cutter.cancel();
            let summary = timeout(END_TIMEOUT, serving).await.ok().transpose()?;
            ServeOutcome { summary, in_order: false }
        }
    };
    updater.save(&note).await;
    failed.map_or(Ok(ended), Err)
}

/// Prints the bound address for the parent process; from now on programs are served.
fn print_ready(at: SocketAddr, as_json: bool) -> io::Result<()> {
    let pac = format!("http://{at}/proxy.pac");
    match as_json {
        true => say_line(json!({ "event": "ready", "listen": at.to_string(), "pac": pac })),
        false => {
            note!("thalweg: http_proxy=http://{at}, socks5h://{at}, or {pac}");
            say_line(format_args!("ready {at}"))
        }
    }
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
