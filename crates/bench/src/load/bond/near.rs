//! How the client connects to the far end: over one interface, by MPTCP, through a proxy, or by a bond.

use super::{super::server_dialer::Connection, counters, members, serve::StripingArgs};
use anyhow::{Context as _, ensure};
use socket2::SockRef;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use thalweg_net::{DialOptions, Dialer, Hop, PrivateKey, Route, channel::Connector, interfaces};
use thalweg_uplinks::bond::{Bond, Settings};
use thalweg_wire::{Destination, Signer as _, mesh::Terms};
use tokio::{
    net::TcpSocket,
    time::{Instant, timeout},
};

/// The longest wait for all links: some round trips of the slowest one, with losses.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which way; one of them.
#[derive(clap::Args)]
pub struct TransportArgs {
    /// The server of known bytes, for TCP and MPTCP
    #[arg(long, value_name = "ADDR:PORT")]
    to: Destination,
    /// Use plain TCP over this interface
    #[arg(long, value_name = "NAME", group = "way")]
    interface: Option<String>,
    /// Use MPTCP, which must have several subflows; run under `mptcpize run`
    #[arg(long, group = "way")]
    mptcp: bool,
    /// Congestion control for MPTCP, which does not take it from the route for all subflows
    #[arg(long, value_name = "NAME", requires = "mptcp")]
    congestion: Option<String>,
    /// Connect through a SOCKS5 proxy of this host
    #[arg(long, value_name = "ADDR:PORT", group = "way")]
    socks: Option<Destination>,
    /// Use a bond with the daemon at this address
    #[arg(long, value_name = "ADDR:PORT", group = "way")]
    bond: Option<Destination>,
    /// Number of links of a bond over each interface
    #[arg(long, value_name = "N", default_value_t = 1)]
    links: usize,
    #[command(flatten)]
    how: StripingArgs,
}

/// A transport that is ready.
pub enum NearTransport {
    /// Connections over one interface or through a proxy.
    Tcp { dialer: Box<Dialer>, route: Route, to: Destination },
    /// Connections of the kernel's MPTCP. They do not use our dialler, because MPTCP lacks options that it sets.
    Mptcp { to: Destination, congestion: Option<String> },
    /// A bond, and the time until it had all its links.
    Bond { bond: Bond, took: Duration },
}

impl TransportArgs {
    /// Makes the transport ready; a bond is ready once it has its links by each interface.
    ///
    /// # Errors
    /// When there is no such interface or a link cannot be set up.
    pub async fn open(&self) -> anyhow::Result<NearTransport> {
        if let Some(at) = &self.bond {
            let (key, settings) = (members::near_key(0), self.how.settings());
            return open_bond(at.clone(), &key, settings, self.links).await;
        }
        if self.mptcp {
            let (to, congestion) = (self.to.clone(), self.congestion.clone());
            return Ok(NearTransport::Mptcp { to, congestion });
        }
        let route = match (&self.interface, &self.socks) {
            (None, None) => Route::direct(),
            (None, Some(proxy)) => Route::through([proxy.clone()])?,
            (Some(name), _) => {
                let found = interfaces()?.into_iter().find(|found| found.name == *name);
                Route::direct().by_interface(found.context("there is no such interface")?.index)
            }
        };
        let dialer = Dialer::new(options());
        Ok(NearTransport::Tcp { dialer: Box::new(dialer), route, to: self.to.clone() })
    }
}

/// The dialling options of all transports.
pub fn options() -> DialOptions {
    DialOptions { deadline: PATIENCE, ..DialOptions::default() }
}

/// A bond of the owner of `key` with the daemon at `at`, with `links` links by each interface.
///
/// # Errors
/// When a link cannot be set up.
pub async fn open_bond(
    at: Destination,
    key: &PrivateKey,
    settings: Settings,
    links: usize,
) -> anyhow::Result<NearTransport> {
    let dialer = Dialer::with_identity(options(), Connector::new(key)?);
    let to = Hop::mesh(at, members::far_key().id(), Terms::default());
    let by = move |_: &_| {
        let found = interfaces()?;
        Ok(found.into_iter().flat_map(|one| std::iter::repeat_n(one, links)).collect())
    };
    let made = Bond::with_interfaces(dialer, to, settings, Arc::new(by))?;
    wait_for_links(made, interfaces()?.len() * links).await
}

async fn wait_for_links(bond: Bond, wanted: usize) -> anyhow::Result<NearTransport> {
    let began = Instant::now();
    let mut readiness = bond.readiness();
    let all = timeout(PATIENCE, readiness.wait_for(|now| now.live >= wanted)).await;
    ensure!(
        matches!(all, Ok(Ok(_))),
        "the bond did not reach {wanted} links: {:?}",
        bond.readiness().borrow().clone()
    );
    Ok(NearTransport::Bond { took: began.elapsed(), bond })
}

impl NearTransport {
    /// Opens a stream to the server.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        self.connect_to(None).await
    }

    /// Opens a stream to another server at the far end. The streams of a bond always lead to the same one.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn connect_to(&self, other: Option<&Destination>) -> anyhow::Result<Connection> {
        match self {
            Self::Tcp { dialer, route, to } => {
                Ok(Box::new(dialer.dial(route, other.unwrap_or(to)).await?))
            }
            Self::Mptcp { to, congestion } => {
                let at: SocketAddr = other.unwrap_or(to).to_string().parse()?;
                let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
                if let Some(name) = congestion {
                    SockRef::from(&socket).set_tcp_congestion(name.as_bytes())?;
                }
                Ok(Box::new(socket.connect(at).await?))
            }
            Self::Bond { bond, .. } => {
                let opened = bond.open().await;
                Ok(Box::new(
                    opened.map_err(|why| anyhow::anyhow!("cannot open a stream: {why:?}"))?,
                ))
            }
        }
    }

    /// Checks after use that the transport was the intended one.
    ///
    /// # Errors
    /// When MPTCP had no second subflow.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Self::Mptcp { .. } = self {
            ensure!(counters::joined_subflows()? > 0, "MPTCP did not join a second subflow");
        }
        Ok(())
    }

    /// Prints the state of a bond's links, for debugging.
    pub fn print_links(&self) {
        if let Self::Bond { bond, .. } = self {
            for link in bond.links() {
                thalweg_console::note!("thalweg-bench: load bond: {link:?}");
            }
        }
    }
}
