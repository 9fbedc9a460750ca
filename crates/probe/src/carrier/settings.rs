//! The settings of a carrier.

use super::{OpenPorts, datagrams};
use thalweg_measure::riders::{HoldSettings, LegRule, ReassemblyLimits, Regulator, Selection};

/// With a smaller MTU the kernel does not accept IPv6 on a device (RFC 8200 §5).
const LEAST_MTU: u16 = 1280;

/// The settings of a carrier.
#[derive(Clone, Debug)]
pub struct CarrierSettings {
    pub device: String,
    /// The longest packet that the paths to members take whole, bytes.
    pub path_mtu: u16,
    /// How long packets are held, and how many.
    pub hold: HoldSettings,
    /// Which probes may carry packets: all of these must allow it.
    pub regulators: Vec<Regulator>,
    /// Which packets may ride.
    pub selection: Selection,
    /// TCP's congestion control over the device; `None`: the host's own.
    pub congestion: Option<String>,
    /// Which of this node's own connections ride although their routes do not say so; `None`: none.
    pub legs: Option<LegRule>,
    /// Ports of this host that are open to members at the device.
    pub doors: OpenPorts,
}

impl Default for CarrierSettings {
    fn default() -> Self {
        Self {
            device: "thalweg0".to_owned(),
            path_mtu: 1500,
            hold: HoldSettings::default(),
            regulators: Vec::new(),
            selection: Selection::default(),
            congestion: None,
            legs: None,
            doors: OpenPorts::default(),
        }
    }
}

impl CarrierSettings {
    /// The MTU of the device: a packet without a probe fits the path whole, unless IPv6 requires a larger MTU.
    pub fn mtu(&self) -> u16 {
        (datagrams::mtu(self.path_mtu) as u16).max(LEAST_MTU)
    }

    pub(super) fn room(&self) -> usize {
        datagrams::room(self.path_mtu)
    }

    /// The bounds for incomplete riders, raised so that packets as long as this device's are accepted.
    pub(super) fn limits(&self, all: ReassemblyLimits) -> ReassemblyLimits {
        ReassemblyLimits { longest: all.longest.max(self.mtu().into()), ..all }
    }

    /// Whether any rule asks for the state of TCP flows.
    pub(super) fn watches_flows(&self) -> bool {
        self.regulators.iter().any(|one| matches!(one, Regulator::Flow { .. }))
    }
}
