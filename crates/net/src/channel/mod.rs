//! Authenticated channels between nodes: TLS 1.3 with raw public keys (RFC 7250) of both ends.
//!
//! Channels use no X.509 certificates, session tickets or resumption: each one proves both keys anew, so a revoked key
//! opens no channel. ALPN chooses the protocol inside. On an *open* leg ([`Channel::into_clear`]) TLS ends after an
//! agreed byte and the connection continues in the clear.

mod accept;
mod connect;
mod error;
mod incoming;
mod queue;
mod session;
mod tls;

pub use accept::{AcceptError, Acceptor, FAREWELL};
pub use connect::{ChannelError, Connector};
pub use queue::Queue;

use session::Session;
use std::{
    io::{self, Write as _},
    pin::Pin,
    task::{Context, Poll, ready},
};
use thalweg_units::NodeId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The protocol inside a channel, chosen by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// The oracle's API: HTTP/1.1.
    Api,
    /// Joining: HTTP/1.1; open to keys that are in no roster.
    Join,
    /// SOCKS5 with terms.
    Relay,
    /// Bulk flows for measurement.
    Measure,
    /// Files between nodes.
    Object,
    /// Submissions with a deadline; open to keys that are in no roster if the node has a drop box.
    Submit,
    /// Bonded streams.
    Bond,
    /// One-to-many delivery.
    Cast,
    Probe,
    /// Live media.
    Stream,
    /// Checks of a pair of members.
    Doctor,
    /// Reaching members that cannot be dialled.
    Reach,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 12] = [
        Self::Api,
        Self::Join,
        Self::Relay,
        Self::Measure,
        Self::Object,
        Self::Submit,
        Self::Bond,
        Self::Cast,
        Self::Probe,
        Self::Stream,
        Self::Doctor,
        Self::Reach,
    ];

    /// The ALPN name. The number at its end changes when old and new versions become incompatible.
    pub const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Api => b"thalweg/api/1",
            Self::Join => b"thalweg/join/1",
            Self::Relay => b"thalweg/relay/1",
            Self::Measure => b"thalweg/measure/1",
            Self::Object => b"thalweg/object/1",
            Self::Submit => b"thalweg/submit/2",
            Self::Bond => b"thalweg/bond/1",
            Self::Cast => b"thalweg/cast/1",
            Self::Probe => b"thalweg/probe/1",
            Self::Stream => b"thalweg/stream/1",
            Self::Doctor => b"thalweg/doctor/1",
            Self::Reach => b"thalweg/reach/1",
        }
    }

    /// Why a node may not serve this protocol, and which setting changes that.
    pub(crate) const fn unserved(self) -> &'static str {
        match self {
            Self::Api | Self::Join => "it is not an oracle of a mesh",
            Self::Relay => {
                "it does not relay: it needs the role relay in the roster (`thalweg mesh members`), and `[relay]` \
                 enabled in its settings"
            }
            Self::Measure => {
                "it accepts no measured flows: `[measure]` is not enabled in its settings"
            }
            Self::Object => "it serves no files: its version is too old",
            Self::Submit => {
                "it has no drop box: its settings have no `[[drop_box]]` (see `thalweg submit \
                 --help`), or its version differs from this one: install the same version on both \
                 hosts"
            }
            Self::Bond => {
                "it accepts no bonds: `[bond]` is not enabled in its settings, or its version is \
                 too old"
            }
            Self::Cast => "it accepts no casts: its version is too old",
            Self::Probe => {
                "it accepts no probe trains: `[measure]` is not enabled in its settings, or its \
                 version is too old"
            }
            Self::Stream => "it does not support live streams: its version is too old",
            Self::Doctor => "it does not answer `thalweg doctor`: its version is too old",
            Self::Reach => {
                "it does not relay to members that cannot be dialled: its version is too old"
            }
        }
    }

    /// The protocol with this ALPN name.
    pub fn from_alpn(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.alpn() == name)
    }
}

/// Decides which keys may open a channel. It is asked within the handshake, before this node sends anything but its own
/// flight of the handshake.
pub trait Admission: Send + Sync + std::fmt::Debug {
    /// Whether the owner of `key` may now speak `protocol` here. Never blocks.
    fn admits(&self, key: &NodeId, protocol: Protocol) -> bool;
}

/// A channel to a node whose key is proven. Reads and writes are plaintext.
///
/// A read of 0 bytes is the peer's `close_notify`. A connection that ends without one is an error (`UnexpectedEof`), so
/// that a truncated stream does not look complete. `shutdown` sends `close_notify` and shuts down the connection's
/// direction.
#[derive(Debug)]
pub struct Channel<IO> {
    session: Session<IO>,
    peer: NodeId,
    protocol: Protocol,
    depth: u8,
}

impl<IO> Channel<IO> {
    /// The peer's proven key.
    pub fn peer(&self) -> NodeId {
        self.peer
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The number of relays between the client and this node, as the last relay states it; 0 on connections that this
    /// node opened.
    pub fn depth(&self) -> u8 {
        self.depth
    }

    /// The connection beneath, for socket options and counters only.
    pub fn get_ref(&self) -> &IO {
        &self.session.io
    }

    /// The connection beneath, mutable; for socket options and counters only.
    pub(crate) fn get_mut(&mut self) -> &mut IO {
        &mut self.session.io
    }

    /// Wraps the connection beneath.
    pub(crate) fn map_io<W>(self, wrap: impl FnOnce(IO) -> W) -> Channel<W> {
        let Self { session: Session { io, tls, incoming }, peer, protocol, depth } = self;
        Channel { session: Session { io: wrap(io), tls, incoming }, peer, protocol, depth }
    }

    /// Keying material of this channel (RFC 8446 §7.5); see [`crate::Peer::exporter_secret`].
    ///
    /// # Errors
    /// If TLS cannot export that many bytes.
    pub fn exporter_secret(
        &self,
        label: &[u8],
        context: &[u8],
        secret: &mut [u8],
    ) -> io::Result<()> {
        let done = self.session.tls.export_keying_material(secret, label, Some(context));
        done.map(drop).map_err(io::Error::other)
    }

    /// Ends TLS. Returns the connection and the clear bytes that were already read from it.
    ///
    /// Call it after the agreed last byte of TLS was read and this end's last byte was written and flushed.
    ///
    /// # Errors
    /// If TLS still holds bytes in either direction, because the peer broke the agreement.
    pub fn into_clear(mut self) -> io::Result<(IO, Vec<u8>)> {
        if self.session.tls.wants_write() {
            return Err(io::Error::other("not all bytes of this end have been sent yet"));
        }
        match self.session.tls.reader().into_first_chunk() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            _ => {
                return Err(io::Error::other(
                    "the peer's last TLS record contains more data than \
                                              agreed",
                ));
            }
        }
        Ok((self.session.io, self.session.incoming.held().to_vec()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Channel<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let plain = ready!(self.session.poll_plaintext(cx))?;
        let n = plain.len().min(buf.remaining());
        buf.put_slice(&plain[..n]);
        self.session.consume(n);
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Channel<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.session.poll_send(cx))?;
        let n = self.session.tls.writer().write(buf)?;
        // The rest is sent by the next write or flush.
        if let Poll::Ready(Err(e)) = self.session.poll_send(cx) {
            return Poll::Ready(Err(e));
        }
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.poll_send(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.tls.send_close_notify();
        ready!(self.session.poll_send(cx))?;
        Pin::new(&mut self.session.io).poll_shutdown(cx)
    }
}
