//! Streams to members otherwise than over one TCP connection: those of a bond.

use crate::{Bookkeeper, Hop};
use std::{fmt, future::Future, io, num::NonZeroU32, pin::Pin, sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream that something else than one TCP connection carries.
pub trait Carried: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin {
    /// Ends it both ways so that neither end takes what came for all there is.
    fn reset(&mut self);

    /// The round trip to its other end; `None` if it is not known.
    fn round_trip(&self) -> Option<Duration>;
}

/// A stream under way.
pub type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn Carried>>> + Send>>;

/// Carries streams to members' own ports.
///
/// A [`Dialer`](crate::Dialer) asks it for the first leg of what is bound to no interface.
pub trait Carrier: fmt::Debug + Send + Sync {
    /// A stream to the port of the node `to`.
    ///
    /// `waits`: the carrier is wanted, and made first if need be; why there is none the stream
    /// tells. Otherwise `None` says that it is not ready, or that the node has none: the dialler
    /// goes the plain way, so that nobody waits, and the carrier may be made meanwhile.
    fn open(&self, to: &Hop, waits: bool) -> Option<Opening>;

    /// Where the plain way to `to` leaves; `None`: the kernel's choice will do.
    ///
    /// # Errors
    /// No interface may be used for it.
    fn leaves_by(&self, _to: &Hop) -> io::Result<Option<Leaving>> {
        Ok(None)
    }
}

/// Where a connection leaves this host.
#[derive(Clone, Debug)]
pub struct Leaving {
    /// The interface.
    pub interface: NonZeroU32,
    /// Who keeps account of it.
    pub books: Option<Arc<dyn Bookkeeper>>,
}
