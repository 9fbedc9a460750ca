//! TLS to web servers, which prove their names by certificates instead of keys of a mesh.
//!
//! It uses rustls with TLS 1.2 and 1.3. The session runs end to end inside a route, so relays see only ciphertext.

mod altered_bytes;
mod common_name;
mod error;
mod roots;
mod verifier;

pub use altered_bytes::{name_altered, says_altered};
pub use error::TlsError;
pub use roots::TlsOptions;
/// The client's end of TLS over `IO`.
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
use verifier::Verifier;

/// Opens TLS connections to servers that prove their names. Cheap to clone.
///
/// Clones share the authorities, which are read at the first use, and the resumable sessions by server (256, rustls's
/// default). Resumption saves a round trip with TLS 1.2, and the certificates' bytes and verification with 1.3. Nothing
/// is sent as early data.
#[derive(Clone)]
pub struct TlsClient(Arc<Inner>);

struct Inner {
    roots: Roots,
    protocols: Vec<Vec<u8>>,
    config: OnceCell<Arc<ClientConfig>>,
}

impl TlsClient {
    /// Creates a client that offers these protocols (ALPN), the best first.
    ///
    /// # Errors
    /// [`TlsError::Roots`] if a file in `options` cannot be used. The system's authorities are read later.
    pub fn new(options: &TlsOptions, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let roots = Roots::with(&options.extra_roots)?;
        let protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Ok(Self(Arc::new(Inner { roots, protocols, config: OnceCell::new() })))
    }

    /// Reads the system's authorities, unless this is done already. It allows callers to do so in idle time before
    /// [`TlsClient::connect`], e.g. while dialing.
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

    /// Opens TLS over `beneath` with the server named `host`, by name or address.
    ///
    /// Cancel-safe: dropping the future drops `beneath`.
    ///
    /// # Errors
    /// [`TlsError`]: the server has not proven its name, or the handshake failed.
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
        let system = |e| TlsError::System(std::io::Error::other(e));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Verifier::new(roots, self.roots.exact(), Arc::clone(&provider));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(system)?
            // The verifier only adds certificates that the user trusts byte for byte; it omits no check.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier.map_err(system)?))
            .with_no_client_auth();
        config.alpn_protocols.clone_from(&self.protocols);
        Ok(Arc::new(config))
    }
}

/// The name that the certificate must contain, without the root's trailing dot (RFC 6066 §3).
fn server_name(host: &Host) -> Option<ServerName<'static>> {
    match host {
        Host::Ip(ip) => Some(ServerName::from(*ip)),
        Host::Name(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            ServerName::try_from(name.to_owned()).ok()
        }
    }
}
