//! The interface to carriers, which open streams to members over something other than one TCP connection (a bond).

use crate::{Bookkeeper, Hop};
use std::{fmt, future::Future, io, num::NonZeroU32, pin::Pin, sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream that does not run over a single TCP connection.
pub trait CarriedStream: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin {
    /// Aborts both directions, so that neither end mistakes the bytes it has received for the whole stream.
    fn reset(&mut self);

    /// The round-trip time to the other end, or `None` if it is unknown.
    fn round_trip(&self) -> Option<Duration>;
}

/// A stream that is being opened.
pub type OpeningStream = Pin<Box<dyn Future<Output = io::Result<Box<dyn CarriedStream>>> + Send>>;

/// Carries streams to members' own ports.
///
/// A [`Dialer`](crate::Dialer) asks it for the first leg of each route that names no interface.
pub trait Carrier: fmt::Debug + Send + Sync {
    /// Opens a stream to the port of the node `to`.
    ///
    /// With `waits` the carrier is required: it is set up first if necessary, and the stream reports why that failed.
    /// Otherwise `None` means that it is not ready, or that the node has none: the dialer then uses a plain connection
    /// without waiting, and the carrier may be set up meanwhile.
    fn open(&self, to: &Hop, waits: bool) -> Option<OpeningStream>;

    /// The interface by which a plain connection to `to` leaves this host; `None` leaves the choice to the kernel.
    ///
    /// # Errors
    /// If no interface may be used for it.
    fn egress(&self, _to: &Hop) -> io::Result<Option<EgressChoice>> {
        Ok(None)
    }
}

/// How a connection leaves this host.
#[derive(Clone, Debug)]
pub struct EgressChoice {
    pub interface: NonZeroU32,
    pub books: Option<Arc<dyn Bookkeeper>>,
}
