//! The accepting end.

use super::{Admission, Channel};
use crate::PrivateKey;
use std::{io, sync::Arc};
use thiserror::Error;
use tokio::net::TcpStream;

/// Accepts channels with our key from those whom [`Admission`] lets in; cheap to clone.
#[derive(Clone, Debug)]
pub struct Acceptor {
    #[expect(dead_code, reason = "contract")]
    admission: Arc<dyn Admission>,
}

/// No channel came about; the peer has got an alert at most.
#[derive(Debug, Error)]
pub enum AcceptError {
    /// The connection broke or TLS failed: no key, a wrong one, another protocol.
    #[error("{0}")]
    Handshake(#[source] io::Error),
    /// The key may not speak the protocol here.
    #[error("key {0:?} is not admitted")]
    Stranger(thalweg_units::NodeId),
    /// A relay chain longer than allowed, or a loop.
    #[error("{0} relays before this one are more than allowed")]
    TooDeep(u8),
}

impl Acceptor {
    /// An acceptor that proves `key`.
    ///
    /// # Errors
    /// If TLS does not take the key; not expected.
    pub fn new(_key: &PrivateKey, admission: Arc<dyn Admission>) -> io::Result<Self> {
        Ok(Self { admission })
    }

    /// Reads the preamble, if there is one, and does the handshake. No deadline: the caller has one.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub async fn accept(&self, _tcp: TcpStream) -> Result<Channel<TcpStream>, AcceptError> {
        Err(AcceptError::Handshake(io::ErrorKind::Unsupported.into()))
    }
}
