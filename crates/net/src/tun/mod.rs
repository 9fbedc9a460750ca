//! A TUN device: packets that programs of this host send to its network are read here, and packets
//! written here are delivered to those programs.
//!
//! Offloads stay off: each packet is one that fits the device's MTU, its checksums complete.

mod device;
mod error;
mod setup;

pub use error::TunError;

use crate::sys::watched;
use std::{io, net::Ipv6Addr, os::fd::OwnedFd};
use tokio::io::{Interest, unix::AsyncFd};

/// How a device is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunSettings {
    /// Its name, of 15 bytes at most.
    pub name: String,
    /// The longest packet, bytes; below 1280 the kernel takes IPv6 from it (RFC 8200 §5).
    pub mtu: u16,
    /// This host's address there.
    pub address: Ipv6Addr,
    /// How many of its first bits are the network's: what is routed to the device.
    pub prefix: u8,
    /// TCP's congestion control over it; `None`: the host's own.
    pub congestion: Option<String>,
}

/// A device that lives as long as this.
#[derive(Debug)]
pub struct Tun {
    device: AsyncFd<OwnedFd>,
}

impl Tun {
    /// Makes a device in this thread's network namespace, with its address and route; within a tokio runtime.
    ///
    /// # Errors
    /// [`TunError`]; nothing is left behind.
    pub fn create(settings: &TunSettings) -> Result<Self, TunError> {
        let device = device::create(&settings.name)?;
        setup::set_up(settings)?;
        let device = watched(device).map_err(|source| TunError::Open { source })?;
        Ok(Self { device })
    }

    /// The next packet that is to go; its length.
    ///
    /// # Errors
    /// The kernel's: the device is gone.
    pub async fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        let read = |device: &OwnedFd| Ok(rustix::io::read(device, &mut *packet)?);
        // A device that is deleted is an error, and nothing to read.
        self.device.async_io(Interest::READABLE | Interest::ERROR, read).await
    }

    /// Gives this host a packet; never waits.
    ///
    /// # Errors
    /// The kernel's: it is no packet, the device is down or gone, or nobody has room for it.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(self.device.get_ref(), packet)?;
        Ok(())
    }
}
