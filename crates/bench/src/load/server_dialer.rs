//! How the client connects to the server: directly or through one relay.

use super::{mesh, tls};
use anyhow::Context as _;
use clap::ValueEnum;
use std::{path::PathBuf, time::Duration};
use thalweg_net::{DialOptions, Dialer, Route};
use thalweg_wire::Destination;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// The longest wait for a connection; it only takes long if a queue overflowed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The protocol between client, relay and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RelayProtocol {
    /// TCP to the server
    Direct,
    /// TCP to a relay that knows the server
    Forward,
    /// TLS with X.509 to a relay that knows the server
    Tls,
    /// SOCKS5 without encryption
    Socks5,
    /// A node of our mesh, TLS throughout
    Sealed,
    /// A node of our mesh, clear bytes after the handshake
    Open,
}

/// Which way.
#[derive(clap::Args)]
pub struct ServerArgs {
    /// The server
    #[arg(long, value_name = "ADDR:PORT")]
    to: Destination,
    /// The protocol
    #[arg(long, value_enum, default_value = "direct")]
    by: RelayProtocol,
    /// The relay
    #[arg(long, value_name = "ADDR:PORT", required_if_eq_any = [
        ("by", "forward"), ("by", "tls"), ("by", "socks5"), ("by", "sealed"), ("by", "open"),
    ])]
    relay: Option<Destination>,
    /// The relay's certificate, PEM
    #[arg(long, value_name = "FILE", required_if_eq("by", "tls"))]
    certificate: Option<PathBuf>,
    /// The state directory with the client key and a roster that contains the relay
    #[arg(long, value_name = "DIR", required_if_eq_any = [("by", "sealed"), ("by", "open")])]
    state: Option<PathBuf>,
    /// Measure the processes that listen on this port, and their children
    #[arg(long, value_name = "PORT")]
    pub watch: Option<u16>,
}

/// A connection to the server.
pub type Connection = Box<dyn Duplex>;

/// A bidirectional byte stream.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A dialler and a route to the server, ready to connect.
pub struct ServerDialer {
    dialer: Dialer,
    route: Route,
    /// The end of the dialled connection: the server, or a relay that forwards to it.
    to: Destination,
    tls: Option<TlsConnector>,
}

impl ServerArgs {
    /// The dialler that the arguments select.
    ///
    /// # Errors
    /// When a certificate or key cannot be read.
    pub fn dialer(&self) -> anyhow::Result<ServerDialer> {
        let options = DialOptions { deadline: PATIENCE, ..DialOptions::default() };
        let relay = self.relay.clone().unwrap_or_else(|| self.to.clone());
        let plain = ServerDialer {
            dialer: Dialer::new(options.clone()),
            route: Route::direct(),
            to: self.to.clone(),
            tls: None,
        };
        Ok(match self.by {
            RelayProtocol::Direct => plain,
            RelayProtocol::Forward => ServerDialer { to: relay, ..plain },
            RelayProtocol::Tls => {
                let file = self.certificate.as_deref().context("--certificate is required")?;
                ServerDialer { to: relay, tls: Some(tls::connector(file)?), ..plain }
            }
            RelayProtocol::Socks5 => ServerDialer { route: Route::through([relay])?, ..plain },
            RelayProtocol::Sealed | RelayProtocol::Open => {
                let state = self.state.as_deref().context("--state is required")?;
                let (dialer, route) =
                    mesh::route(state, relay, self.by == RelayProtocol::Open, options)?;
                ServerDialer { dialer, route, ..plain }
            }
        })
    }

    /// The same dialler without the relay.
    pub fn direct_dialer(&self) -> ServerDialer {
        let options = DialOptions { deadline: PATIENCE, ..DialOptions::default() };
        let dialer = Dialer::new(options);
        ServerDialer { dialer, route: Route::direct(), to: self.to.clone(), tls: None }
    }
}

impl ServerDialer {
    /// Connects.
    ///
    /// # Errors
    /// When the connection fails; the error says at which host and why.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = self.dialer.dial(&self.route, &self.to).await?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let handshake = tokio::time::timeout(PATIENCE, tls.connect(tls::name()?, stream));
        let stream = handshake.await.context("TLS handshake: no answer in time")?;
        Ok(Box::new(stream.with_context(|| format!("TLS handshake with {}", self.to))?))
    }
}
