//! The far end: a server of known bytes and a daemon whose bonds lead to it.

use super::{super::server, members};
use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::json;
use std::{
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use thalweg_base::log::Log;
use thalweg_bond::{SenderSettings, StripeMethod};
use thalweg_node::daemon::{
    Daemon, DaemonConfig, HandshakeLimits, NoDocuments, NoReload, Node, OracleDown, Services,
};
use thalweg_uplinks::bond::{BondLimits, Bonds, Settings};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The bounds of all bonds, greater than these measurements need.
const LIMITS: BondLimits = BondLimits { bonds: 256, memory: 1 << 30 };

/// Arguments of `thalweg-bench load bond serve`.
#[derive(clap::Args)]
pub struct Args {
    /// Addresses of the server of known bytes; bonds connect to the first one
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',', required_unless_present = "lead")]
    listen: Vec<SocketAddr>,
    /// Connect bonds to this server of this host, instead of running a server
    #[arg(long, value_name = "ADDR:PORT", requires = "bonds", conflicts_with = "listen")]
    lead: Option<SocketAddr>,
    /// Address of the daemon that accepts bonds (default: none)
    #[arg(long, value_name = "ADDR:PORT")]
    bonds: Option<SocketAddr>,
    /// Congestion control of accepted connections: MPTCP gives joined subflows that of the system, not that of the
    /// route
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    #[command(flatten)]
    how: StripingArgs,
}

/// How an end stripes what it sends.
#[derive(Clone, Copy, clap::Args)]
pub struct StripingArgs {
    /// Which link gets the next chunk
    #[arg(long, value_enum, default_value = "earliest")]
    method: Method,
    /// Bytes of a chunk (default: that of the product)
    #[arg(long, value_name = "BYTES")]
    chunk: Option<u32>,
    /// Send no chunk twice
    #[arg(long)]
    once: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Method {
    /// The paper's PO Round Robin
    RoundRobin,
    /// The paper's PO Weighted Round Robin
    Weighted,
    /// The product's method
    Earliest,
}

impl StripingArgs {
    /// The settings of a bond.
    pub fn settings(self) -> Settings {
        let method = match self.method {
            Method::RoundRobin => StripeMethod::RoundRobin,
            Method::Weighted => StripeMethod::WeightedRoundRobin,
            Method::Earliest => StripeMethod::EarliestCompletion,
        };
        let usual = SenderSettings::default();
        let usual = match self.once {
            true => SenderSettings { bytes_per_spare: 0, first_spare: 0, ..usual },
            false => usual,
        };
        let sender = SenderSettings { chunk: self.chunk.unwrap_or(usual.chunk), ..usual };
        Settings { method, sender, ..Settings::default() }
    }
}

/// Serves until the program is ended.
///
/// # Errors
/// When it cannot listen or accept.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let mut listeners = Vec::new();
    for at in &args.listen {
        listeners.push(server::listen(*at).context("cannot listen")?);
    }
    let own = match (args.lead, listeners.first()) {
        (Some(lead), _) => lead,
        (None, first) => {
            let port = first.context("--listen is required")?.local_addr()?.port();
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
        }
    };
    let dir = tempfile::tempdir()?;
    if let Some(at) = args.bonds {
        let daemon = daemon(at, own, args.how.settings(), dir.path()).await?;
        let end = CancellationToken::new();
        tokio::spawn(daemon.run(end.clone().cancelled_owned(), end.cancelled_owned()));
    }
    writeln!(io::stdout().lock(), "{}", json!({ "event": "ready" }))?;
    let accept = |listener| server::accept(listener, args.congestion.clone());
    let mut serving: JoinSet<_> = listeners.into_iter().map(accept).collect();
    match serving.join_next().await {
        Some(ended) => ended?,
        // Only the daemon runs.
        None => std::future::pending().await,
    }
}

async fn daemon(
    at: SocketAddr,
    own: SocketAddr,
    settings: Settings,
    dir: &std::path::Path,
) -> anyhow::Result<Daemon> {
    let membership = members::membership(at.into())?;
    // The log has no reader; the near end reports broken links.
    let (log, _) = Log::to_queue();
    let bonds = Bonds::new(settings, LIMITS, log.clone());
    bonds.set_own_port(own);
    let (relay, oracle, measure) = (None, None, None);
    let (files, cast, submit) = (None, None, None);
    let bond = Some(Arc::new(bonds) as _);
    let node = Node {
        name: members::far_name()?,
        key: members::far_key(),
        membership: membership.clone(),
        services: Services {
            relay,
            oracle,
            measure,
            files,
            cast,
            bond,
            probe: None,
            stream: None,
            doctor: None,
            reach: None,
            submit,
        },
        control: Arc::new(OracleDown::new(membership, "this program has no oracle")),
        registry: Default::default(),
        jobs: None,
        documents: Arc::new(NoDocuments),
        settings: Arc::new(NoReload),
        legs: None,
        reach: None,
        log,
    };
    let config = DaemonConfig {
        riding: None,
        listen: vec![at],
        handshake: Duration::from_secs(10),
        limits: HandshakeLimits::default(),
        drain: Duration::ZERO,
        metrics: None,
        api: None,
        socket: dir.join("node.sock"),
        socks: None,
    };
    Ok(Daemon::bind(config, node).await?)
}
