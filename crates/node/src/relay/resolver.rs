//! Who turns names into addresses for a relay.

use std::{fmt, net::SocketAddr, pin::Pin};
use thalweg_net::Cause;
use thalweg_wire::Destination;

/// The answer to [`Resolver::resolve`].
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, Cause>> + Send + 'a>>;

/// Turns a destination into addresses.
///
/// A relay asks once for each name of a connection, checks every address of
/// the answer, and dials checked addresses alone: whatever is answered the
/// next time (DNS rebinding) changes nothing.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// All addresses of `host`, at least one; an address is its own answer.
    fn resolve<'a>(&'a self, host: &'a Destination) -> Answer<'a>;
}

/// The system's resolver: `/etc/hosts`, then its name servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a Destination) -> Answer<'a> {
        Box::pin(thalweg_net::resolve(host))
    }
}
