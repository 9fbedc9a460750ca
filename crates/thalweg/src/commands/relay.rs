//! `thalweg relay`: serves SOCKS5 clients without a mesh.

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

/// Descriptors for everything but connections: standard streams, the runtime, name lookups.
const OTHER_DESCRIPTORS: u64 = 64;

const HELP: &str = "\
Serves SOCKS5 clients: programs on this host, or the clients that --allow-from names. It connects
to public addresses on ports 80 and 443 only, unless --allow-to and --allow-port say otherwise.
Prints the line `ready ADDR` once it serves, and logs to standard error. A host in a mesh relays by
`thalweg node` instead.

  thalweg relay --listen 0.0.0.0:1080 --allow-from 192.0.2.0/24
  thalweg get https://example.org/big.iso --via relay.example.org:1080   # on a client

On SIGTERM it accepts no more connections and gives existing ones 30 s to end; a second SIGTERM
ends it at once.

Exit codes: 0 ended normally; 1 cannot start; 2 wrong usage.";

/// Arguments of `thalweg relay`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:1080", value_parser = parse_listen)]
    listen: SocketAddr,
    /// Clients to serve, required if other hosts can connect; connections of others are closed
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

/// Parses `--listen`: an address and a port. Names are refused, so that no resolver decides who can connect.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDR:PORT, e.g. 127.0.0.1:1080 or [::1]:1080".to_owned())
}

/// Parses `--allow-port`. The policy removes [`SMTP`] from any range; alone it would allow nothing.
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

/// Runs the command until SIGTERM or SIGINT, then drains connections; a second signal ends it at once.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    // Name lookups block a thread each; 64 threads outlast any burst that one resolver survives.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(64)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let (log, writer) = Log::to_stderr().context("cannot start the log")?;
    let result = runtime.block_on(serve(&args, log));
    // A name lookup may hang for half a minute; its answer is not waited for.
    runtime.shutdown_background();
    result?;
    // The relay has ended, and with it the last sender, so the writer ends.
    writer.join().ok().context("the log's writer failed")?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: &Args, log: Log) -> anyhow::Result<()> {
    let mut signals = Signals::watch()?;
    warn_of_few_descriptors(args.max_connections);
    let relay = Relay::bind(args.config(), log).await.map_err(with_hint)?;
    print_ready(relay.local_addr().context("cannot determine the bound address")?, args.json)?;

    let (first, asked) = tokio::sync::oneshot::channel::<()>();
    let mut serving = std::pin::pin!(relay.run(async { _ = asked.await }));
    tokio::select! {
        _ = &mut serving => return Ok(()),
        () = signals.next() => drop(first),
    }
    note!("thalweg: draining: waiting for open connections; interrupt again to stop at once");
    tokio::select! { _ = &mut serving => {}, () = signals.next() => {} }
    Ok(())
}

/// Adds what the user can try, in terms of this command's options.
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
                "this host does not have this address; `ip address` lists its addresses"
            }
            io::ErrorKind::PermissionDenied => "ports below 1024 need root; choose a higher one",
            _ => return error.into(),
        },
    };
    // With its causes, once; the hint comes last.
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

/// Prints the bound address for the parent process; from now on clients are served.
fn print_ready(listen: SocketAddr, as_json: bool) -> anyhow::Result<()> {
    let line = match as_json {
        true => json!({ "event": "ready", "listen": listen.to_string() }).to_string(),
        false => format!("ready {listen}"),
    };
    say(&format!("{line}\n")).context("cannot print the address")
}
