//! TLS to servers of the Web: names are proven by certificates, not by a mesh's keys.

use std::{io, path::PathBuf, sync::Arc};
use thalweg_wire::Host;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

/// What a server's certificate is checked by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// PEM files of certificate authorities that are trusted besides the system's.
    pub extra_roots: Vec<PathBuf>,
}

/// Makes TLS connections to servers that prove their names; cheap to clone.
#[derive(Clone)]
pub struct TlsClient(Arc<rustls::ClientConfig>);

/// TLS could not be set up, or the server did not prove its name.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file of authorities cannot be used.
    #[error("the certificates in {} cannot be used: {source}", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The handshake failed: wrong name, unknown authority, no common version, a broken leg.
    #[error("TLS with the server failed: {0}")]
    Handshake(#[source] io::Error),
}

impl TlsClient {
    /// A client that offers these protocols (ALPN), the best first.
    ///
    /// # Errors
    /// [`TlsError::Roots`].
    pub fn new(options: &TlsOptions, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        _ = (options, protocols);
        Err(TlsError::Handshake(io::ErrorKind::Unsupported.into()))
    }

    /// TLS over `beneath` with the server called `host`.
    ///
    /// # Errors
    /// [`TlsError::Handshake`].
    pub async fn connect<IO>(&self, beneath: IO, host: &Host) -> Result<TlsStream<IO>, TlsError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        _ = (&self.0, beneath, host);
        Err(TlsError::Handshake(io::ErrorKind::Unsupported.into()))
    }
}
