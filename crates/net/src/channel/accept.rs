//! The accepting end of a channel.

use super::{
    Admission, Channel, Protocol, error, incoming::Incoming, queue::Queue, session::Session, tls,
};
use crate::PrivateKey;
use rustls::{
    ServerConfig,
    server::{Accepted, AcceptedAlert, Acceptor as Hello},
};
use std::{future::poll_fn, io, sync::Arc, time::Duration};
use thalweg_wire::mesh::{MAX_DEPTH, Preamble};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

/// Accepts channels from the keys that [`Admission`] admits. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Acceptor {
    served: Arc<[(Protocol, Arc<ServerConfig>)]>,
}

/// The error of a channel that was not accepted. The peer has received at most an alert.
#[derive(Debug, Error)]
pub enum AcceptError {
    /// The connection broke or TLS failed: no key, an invalid one, or another protocol.
    #[error("{0}")]
    Handshake(#[source] io::Error),
    /// The key, which its owner has proven, may not speak the protocol here.
    #[error("key {0:?} is not admitted")]
    Stranger(thalweg_units::NodeId),
    /// The relay chain is longer than allowed, or a loop.
    #[error("there are {0} relays before this one, more than allowed")]
    TooDeep(u8),
}

/// A fatal alert `no_application_protocol` (RFC 7301 §3.2), unencrypted like everything before the handshake.
const NO_PROTOCOL: [u8; 7] = [21, 3, 3, 0, 2, 2, 120];

/// How long a refused peer has to read its alert: longer than any round trip.
pub const FAREWELL: Duration = Duration::from_secs(1);

impl Acceptor {
    /// Creates an acceptor that proves `key` and serves `protocols`. Other protocols are answered with an alert.
    ///
    /// # Errors
    /// If TLS rejects the key, which is not expected.
    pub fn new(
        key: &PrivateKey,
        admission: Arc<dyn Admission>,
        protocols: &[Protocol],
    ) -> io::Result<Self> {
        let served = |&p: &Protocol| {
            tls::server_config(key, admission.clone(), p).map(|config| (p, Arc::new(config)))
        };
        Ok(Self { served: protocols.iter().map(served).collect::<io::Result<_>>()? })
    }

    /// Reads the preamble, if there is one, and does the handshake. It has no deadline: the caller sets one.
    ///
    /// A refused peer gets an alert, and up to [`FAREWELL`] to read it.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub async fn accept<IO>(&self, io: IO) -> Result<Channel<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_by(io, None).await
    }

    /// Like [`accept`](Self::accept), but takes a turn of `queue` for the key work.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub async fn accept_in_turn<IO>(
        &self,
        io: IO,
        queue: &Queue<'_, IO>,
    ) -> Result<Channel<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_by(io, Some(queue)).await
    }

    async fn accept_by<IO>(
        &self,
        io: IO,
        queue: Option<&Queue<'_, IO>>,
    ) -> Result<Channel<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut opening = AcceptingConnection { io, incoming: Incoming::small() };
        let depth = opening.preamble().await?;
        let accepted = opening.hello().await.map_err(AcceptError::Handshake)?;
        let Some((protocol, config)) = self.choose(&accepted) else {
            opening.refuse(&NO_PROTOCOL).await;
            return Err(AcceptError::Handshake(io::Error::other(
                "the client offered no protocol that is served here",
            )));
        };
        let turn = Queue::turn(queue).await;
        Queue::check(queue, &opening.io).map_err(AcceptError::Handshake)?;
        let connected = accepted.into_connection(config);
        drop(turn);
        let tls = match connected {
            Ok(tls) => tls,
            Err(failed) => return Err(AcceptError::Handshake(opening.fail(failed).await)),
        };
        let mut session = Session { io: opening.io, tls: tls.into(), incoming: opening.incoming };
        if let Err(e) = session.handshake(queue).await {
            farewell(&mut session.io).await;
            return Err(AcceptError::from_handshake(e));
        }
        let keys = session.tls.peer_certificates();
        let peer = keys.and_then(|k| k.first()).and_then(tls::node).ok_or_else(no_key)?;
        Ok(Channel { session, peer, protocol, depth })
    }

    /// The first protocol that the client offers and this node serves.
    fn choose(&self, accepted: &Accepted) -> Option<(Protocol, Arc<ServerConfig>)> {
        let hello = accepted.client_hello();
        let mut offered = hello.alpn()?.filter_map(Protocol::from_alpn);
        offered.find_map(|p| self.served.iter().find(|(served, _)| *served == p).cloned())
    }
}

fn no_key() -> AcceptError {
    AcceptError::Handshake(io::Error::other("the client presented no key"))
}

/// Shuts down this end's direction and waits until the peer has shut down its own, for [`FAREWELL`] at most.
///
/// If the connection were closed with bytes unread, the kernel would reset it, and the alert could be lost. Bytes that
/// arrive are discarded, up to a limit.
async fn farewell<IO: AsyncRead + AsyncWrite + Unpin>(io: &mut IO) {
    let drain = async {
        io.shutdown().await?;
        let mut bin = [0; 1024];
        for _ in 0..64 {
            if io.read(&mut bin).await? == 0 {
                break;
            }
        }
        Ok::<(), io::Error>(())
    };
    // A failure to send the alert is ignored: the refusal itself is the error to report.
    let _ = timeout(FAREWELL, drain).await;
}

/// A connection whose protocol is not known yet.
struct AcceptingConnection<IO> {
    io: IO,
    incoming: Incoming,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AcceptingConnection<IO> {
    /// The depth in the preamble of another relay, or 0 without a preamble.
    async fn preamble(&mut self) -> Result<u8, AcceptError> {
        let bytes = loop {
            match self.incoming.held() {
                [first, ..] if *first != Preamble::FIRST => return Ok(0),
                held => match held.first_chunk::<{ Preamble::LENGTH }>() {
                    Some(bytes) => break *bytes,
                    None => self.fill().await.map_err(AcceptError::Handshake)?,
                },
            }
        };
        let invalid =
            || AcceptError::Handshake(io::Error::other("the relay's preamble is not valid"));
        let Preamble { depth } = Preamble::decode(bytes).ok_or_else(invalid)?;
        self.incoming.consume(Preamble::LENGTH);
        if depth > MAX_DEPTH { Err(AcceptError::TooDeep(depth)) } else { Ok(depth) }
    }

    async fn fill(&mut self) -> io::Result<()> {
        match poll_fn(|cx| self.incoming.poll_fill(&mut self.io, cx)).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reads the ClientHello, which lists the protocols that the client offers.
    async fn hello(&mut self) -> io::Result<Accepted> {
        let mut hello = Hello::default();
        loop {
            let Some(length) = self.incoming.record()? else {
                self.fill().await?;
                continue;
            };
            let mut record = &self.incoming.held()[..length];
            while !record.is_empty() && hello.read_tls(&mut record)? > 0 {}
            self.incoming.consume(length);
            match hello.accept() {
                Ok(Some(accepted)) => return Ok(accepted),
                Ok(None) => {}
                Err(failed) => return Err(self.fail(failed).await),
            }
        }
    }

    /// Sends the alert that TLS has prepared, if any, and returns TLS's error.
    async fn fail(&mut self, (error, mut alert): (rustls::Error, AcceptedAlert)) -> io::Error {
        let mut bytes = Vec::new();
        match alert.write_all(&mut bytes) {
            Ok(()) => self.refuse(&bytes).await,
            Err(e) => return e,
        }
        error::from_tls(error)
    }

    async fn refuse(&mut self, alert: &[u8]) {
        // A peer that the alert could not be sent to needs no farewell.
        if self.io.write_all(alert).await.is_ok() {
            farewell(&mut self.io).await;
        }
    }
}
