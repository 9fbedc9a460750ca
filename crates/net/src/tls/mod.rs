//! TLS to web servers, which prove their names by certificates instead of by a mesh's keys.
//!
//! rustls with TLS 1.2 and 1.3. The session runs inside a path's bytes: relays see ciphertext.

mod altered;
mod error;
mod roots;

pub use altered::{name_altered, says_altered};
pub use error::TlsError;
pub use roots::TlsOptions;
/// TLS over `IO`, at the client's end.
pub use tokio_rustls::client::TlsStream;

use roots::Roots;
use rustls::{
    ClientConfig,
    crypto::aws_lc_rs,
    pki_types::ServerName,
    version::{TLS12, TLS13},
};
use std::{fmt, sync::Arc};
use thalweg_wire::Host;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::OnceCell,
    task::spawn_blocking,
};
use tokio_rustls::TlsConnector;

/// Makes TLS connections to servers that prove their names; cheap to clone.
///
/// Clones share the authorities, which are read at the first use, and the sessions that
/// can be resumed, by server (256, rustls's own default): on TLS 1.2 that saves a round
/// trip, on 1.3 the certificates' bytes and checks. Nothing is sent as early data.
#[derive(Clone)]
pub struct TlsClient(Arc<Inner>);

struct Inner {
    roots: Roots,
    protocols: Vec<Vec<u8>>,
    config: OnceCell<Arc<ClientConfig>>,
}

impl TlsClient {
    /// A client that offers these protocols (ALPN), the best first.
    ///
    /// # Errors
    /// [`TlsError::Roots`] if a file in `options` cannot be used. The system's own
    /// authorities are read later.
    pub fn new(options: &TlsOptions, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let roots = Roots::with(&options.extra_roots)?;
        let protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Ok(Self(Arc::new(Inner { roots, protocols, config: OnceCell::new() })))
    }

    /// Reads the system's authorities, unless that is done: for whoever has time for it
    /// before [`TlsClient::connect`], e.g. while dialling.
    ///
    /// # Errors
    /// [`TlsError::Roots`], [`TlsError::System`].
    pub async fn prepare(&self) -> Result<(), TlsError> {
        self.config().await.map(|_| ())
    }

    async fn config(&self) -> Result<&Arc<ClientConfig>, TlsError> {
        let configured = self.0.config.get_or_try_init(|| async {
            let inner = Arc::clone(&self.0);
            spawn_blocking(move || inner.configure())
                .await
                .map_err(|e| TlsError::System(e.into()))?
        });
        configured.await
    }

    /// TLS over `beneath` with the server called `host`, by name or by address.
    ///
    /// Cancel-safe: dropping the future drops `beneath`.
    ///
    /// # Errors
    /// [`TlsError`]: the server has not proven its name, or the handshake broke.
    pub async fn connect<IO>(&self, beneath: IO, host: &Host) -> Result<TlsStream<IO>, TlsError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let name = server_name(host).ok_or_else(|| TlsError::Name(host.to_string()))?;
        let connector = TlsConnector::from(Arc::clone(self.config().await?));
        connector.connect(name, beneath).await.map_err(|error| TlsError::handshake(host, error))
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").finish_non_exhaustive()
    }
}

impl Inner {
    fn configure(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let roots = self.roots.with_the_systems()?;
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_protocol_versions(&[&TLS13, &TLS12])
                .map_err(|e| TlsError::System(std::io::Error::other(e)))?
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols.clone_from(&self.protocols);
        Ok(Arc::new(config))
    }
}

/// What a certificate must name: the root's dot is no part of it (RFC 6066 §3).
fn server_name(host: &Host) -> Option<ServerName<'static>> {
    match host {
        Host::Ip(ip) => Some(ServerName::from(*ip)),
        Host::Name(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            ServerName::try_from(name.to_owned()).ok()
        }
    }
}
