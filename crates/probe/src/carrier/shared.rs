//! What the parts of a carrier share.

use super::{CarrierSettings, directory::Directory};
use parking_lot::{Mutex, MutexGuard};
use std::{fmt, io, net::Ipv6Addr, sync::Arc};
use thalweg_base::log::Log;
use thalweg_mesh::carrier_network::Network;
use thalweg_mesh::{Membership, member_dialer::MemberDialer};
use thalweg_units::NodeId;

/// Delivers packets to this host.
pub trait PacketSink: Send + Sync {
    /// Delivers one packet; never waits.
    ///
    /// # Errors
    /// The device's.
    fn deliver(&self, packet: &[u8]) -> io::Result<()>;
}

/// The state of the device.
#[derive(Clone, Default)]
pub enum DeviceState {
    /// It has not been created yet.
    #[default]
    Before,
    /// It carries packets.
    Up(Arc<dyn PacketSink>),
    /// There is no device, for this reason.
    Gone(String),
}

impl fmt::Debug for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "Before",
            Self::Up(_) => "Up",
            Self::Gone(_) => "Gone",
        })
    }
}

/// This host's end. Partners hold it instead of [`CarrierShared`], which holds them: a cycle would outlive the node,
/// with its log and its device.
#[derive(Debug)]
pub struct LocalEnd {
    pub(super) settings: CarrierSettings,
    /// This node's overlay address.
    pub(super) own: Ipv6Addr,
    device_state: Mutex<DeviceState>,
}

/// What the parts of a carrier share.
#[derive(Debug)]
pub struct CarrierShared {
    pub(super) local: Arc<LocalEnd>,
    pub(super) network: Network,
    /// This node's key.
    pub(super) me: NodeId,
    pub(super) membership: Membership,
    pub(super) dialer: MemberDialer,
    pub(super) log: Log,
    pub(super) directory: Mutex<Directory>,
}

impl LocalEnd {
    pub(super) fn new(settings: CarrierSettings, own: Ipv6Addr) -> Arc<Self> {
        Arc::new(Self { settings, own, device_state: Mutex::default() })
    }

    pub(super) fn device_state(&self) -> MutexGuard<'_, DeviceState> {
        self.device_state.lock()
    }

    /// Delivers a packet to this host. Returns whether the device accepted it.
    pub(super) fn write(&self, packet: &[u8]) -> bool {
        let device = match &*self.device_state() {
            DeviceState::Up(device) => Arc::clone(device),
            _ => return false,
        };
        device.deliver(packet).is_ok()
    }
}

impl CarrierShared {
    pub(super) fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock()
    }
}
