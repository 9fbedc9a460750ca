//! `thalweg relay`.

use super::{signals::Signals, text::say};
use anyhow::{Context as _, anyhow};
use serde_json::json;
use std::{io, net::SocketAddr, process::ExitCode};
use thalweg_base::{descriptors::raise_descriptor_limit, log::Log};
use thalweg_console::note;
use thalweg_relay::{
    BindError, ConfigError, EgressPolicy, IpNet, PortRange, PortRangeError, Relay, RelayConfig,
    SMTP, parse_cidr,
};

/// Descriptors for all but connections: standard streams, the runtime, name look-ups.
const OTHER_DESCRIPTORS: u64 = 64;

/// Arguments of `thalweg relay`.
#[derive(clap::Args)]
pub struct Args {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:1080", value_parser = parse_listen)]
    listen: SocketAddr,
    /// Clients to serve, required if others than this host can connect; others get no byte
    #[arg(long, value_name = "CIDR", value_parser = parse_cidr)]
    allow_from: Vec<IpNet>,
    /// Also connect to these networks, which are not public
    #[arg(long, value_name = "CIDR", value_parser = parse_cidr)]
    allow_to: Vec<IpNet>,
    /// Connect to these ports, but never to 25 [default: 80 and 443]
    #[arg(long, value_name = "N[-M]", value_parser = parse_ports)]
    allow_port: Vec<PortRange>,
    /// The most connections at a time; more must wait
    #[arg(long, value_name = "N", default_value_t = RelayConfig::MAX_CONNECTIONS)]
    max_connections: usize,
    /// Print the "ready" line as JSON
    #[arg(long)]
    json: bool,
}

/// Reads `--listen`: an address and a port, no name, so that nobody listens by a resolver's word.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDR:PORT, e.g. 127.0.0.1:1080 or [::1]:1080".to_owned())
}

/// Reads `--allow-port`. The policy leaves [`SMTP`] out of any range; alone it would allow nothing.
fn parse_ports(text: &str) -> Result<PortRange, String> {
    match text.parse() {
        Ok(range) if range == PortRange::one(SMTP) => {
            Err(format!("port {SMTP} is never relayed to, so that no relay sends unwanted mail"))
        }
        other => other.map_err(|error: PortRangeError| error.to_string()),
    }
}

impl Args {
    fn config(&self) -> RelayConfig {
        let mut config = RelayConfig::new(self.listen);
        config.allow_from.clone_from(&self.allow_from);
        config.egress = EgressPolicy::new(self.allow_to.clone(), self.allow_port.clone());
        config.max_connections = self.max_connections;
        config
    }
}

/// Runs the command: until SIGTERM or SIGINT, then drains; a second one ends it at once.
///
/// # Errors
/// When it cannot be done; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    // Look-ups block a thread each; 64 of them outlast any burst that one resolver survives.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(64)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let (log, writer) = Log::to_stderr().context("cannot start the log")?;
    let result = runtime.block_on(serve(&args, log));
    // A look-up may hang for half a minute; nobody waits for its answer.
    runtime.shutdown_background();
    result?;
    // The relay is gone and with it the last sender: the writer ends.
    writer.join().ok().context("the log's writer failed")?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: &Args, log: Log) -> anyhow::Result<()> {
    let mut signals = Signals::watch()?;
    warn_of_few_descriptors(args.max_connections);
    let relay = Relay::bind(args.config(), log).await.map_err(with_hint)?;
    print_ready(relay.local_addr().context("cannot tell the bound address")?, args.json)?;

    let (first, asked) = tokio::sync::oneshot::channel::<()>();
    let mut serving = std::pin::pin!(relay.run(async { _ = asked.await }));
    tokio::select! {
        _ = &mut serving => return Ok(()),
        () = signals.next() => drop(first),
    }
    note!("thalweg: draining; once more to stop at once");
    tokio::select! { _ = &mut serving => {}, () = signals.next() => {} }
    Ok(())
}

/// What to try, in this command's own options.
fn with_hint(error: BindError) -> anyhow::Error {
    let hint = match &error {
        BindError::Config(ConfigError::OpenListener(_)) => {
            "name them with --allow-from CIDR, or listen on 127.0.0.1"
        }
        BindError::Config(ConfigError::NoConnections) => "give --max-connections at least 1",
        BindError::OwnAddresses(_) => return error.into(),
        BindError::Listen { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => "is another program using it?",
            io::ErrorKind::AddrNotAvailable => {
                "this host has no such address; `ip address` lists its own"
            }
            io::ErrorKind::PermissionDenied => "ports below 1024 are for root; take a higher one",
            _ => return error.into(),
        },
    };
    // With the cause, once: the hint comes last.
    anyhow!("{:#}: {hint}", anyhow::Error::from(error))
}

fn warn_of_few_descriptors(connections: usize) {
    let limit = raise_descriptor_limit();
    let room = limit.saturating_sub(OTHER_DESCRIPTORS) / 2;
    if (connections as u64) > room {
        note!(
            "thalweg: {limit} descriptors allow about {room} connections, fewer than \
             --max-connections {connections}: more will wait; raise `ulimit -n`"
        );
    }
}

/// Prints the bound address for whoever started us; from here on clients are served.
fn print_ready(listen: SocketAddr, as_json: bool) -> anyhow::Result<()> {
    let line = match as_json {
        true => json!({ "event": "ready", "listen": listen.to_string() }).to_string(),
        false => format!("ready {listen}"),
    };
    say(&format!("{line}\n")).context("cannot print the address")
}
