//! A TUN device. It yields the packets that programs of this host send to its network, and delivers the packets written
//! to it to those programs.
//!
//! Offloads stay off: each packet fits the device's MTU and has complete checksums.

mod device;
mod error;
mod setup;

pub use error::TunError;

use crate::sys::watched;
use std::{io, net::Ipv6Addr, os::fd::OwnedFd};
use tokio::io::{Interest, unix::AsyncFd};

/// The settings of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunSettings {
    /// The device's name, at most 15 bytes.
    pub name: String,
    /// The MTU, bytes. Below 1280 the kernel disables IPv6 on the device (RFC 8200 §5).
    pub mtu: u16,
    /// This host's address on the device.
    pub address: Ipv6Addr,
    /// The length of the network's prefix in bits; this network is routed to the device.
    pub prefix: u8,
    /// The congestion control of TCP over the device; `None`: the host's default.
    pub congestion: Option<String>,
}

/// A TUN device, which is removed on drop.
#[derive(Debug)]
pub struct Tun {
    device: AsyncFd<OwnedFd>,
}

impl Tun {
    /// Creates a device in this thread's network namespace, with its address and route. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`TunError`]; nothing is left behind.
    pub fn create(settings: &TunSettings) -> Result<Self, TunError> {
        let device = device::create(&settings.name)?;
        setup::set_up(settings)?;
        let device = watched(device).map_err(|source| TunError::Open { source })?;
        Ok(Self { device })
    }

    /// Reads the next packet that this host sends. Returns its length.
    ///
    /// # Errors
    /// The kernel's error, if the device is gone.
    pub async fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        let read = |device: &OwnedFd| Ok(rustix::io::read(device, &mut *packet)?);
        // A deleted device signals an error, not readability.
        self.device.async_io(Interest::READABLE | Interest::ERROR, read).await
    }

    /// Delivers a packet to this host. Never blocks.
    ///
    /// # Errors
    /// The kernel's error: the bytes are no packet, the device is down or gone, or its queue is full.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(self.device.get_ref(), packet)?;
        Ok(())
    }
}
