//! The interfaces of this host by which others can be reached.

use std::{io, net::IpAddr, num::NonZeroU32};

/// An interface that is up and has an address that others can answer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's index: what routes are bound to.
    pub index: NonZeroU32,
    /// Its name now, for people's eyes.
    pub name: String,
    /// Its addresses, link-local ones left out.
    pub addresses: Vec<IpAddr>,
    /// Whether a default route leaves by it.
    pub has_default_route: bool,
    /// The smallest metric of its default routes: the kernel's own choice has the smallest of all.
    pub metric: u32,
}

/// The interfaces of this network namespace that may carry a transfer, the kernel's own
/// choice for a default route first; loopback is none of them.
///
/// # Errors
/// If the kernel gives no list (rtnetlink).
pub fn interfaces() -> io::Result<Vec<Interface>> {
    Err(io::ErrorKind::Unsupported.into())
}
