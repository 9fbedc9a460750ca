//! The carrier: a network device whose packets ride in the padding of probe trains (MGRP §2.2), or are
//! sent as datagrams of their own.
//!
//! ```text
//! programs ── TUN ── Carrier ── Partner (one a member) ──┬─ probes that take it leave soon: held, at most 10 ms,
//!                                                        │  cut to the padding of its probes (InTrain)
//!                                                        └─ else at once: sealed datagrams of a session (Outlet)
//! programs ── TUN ── Partner: put together, delivered once ── trains ── UDP
//! ```
//!
//! The IPv6 address of each node follows from the mesh's key and its own ([`Network`]): nobody has to assign addresses,
//! and the roster tells them all. A packet to such an address opens a session to that node (protocol `probe`,
//! [`crate::trains::CarrierSession`]), which both ends then use. A packet from a member must have that member's address
//! as its source, and be a reply or be for a port that is open to members (`filter`).

mod boarding;
mod connect;
mod counts;
mod datagrams;
mod directory;
mod filter;
mod partner;
mod report;
mod settings;
mod shared;

pub use counts::RiderCounts;
pub use filter::OpenPorts;
pub use report::{CarrierReport, PartnerReport};
pub use settings::CarrierSettings;
pub use shared::PacketSink;

use crate::trains::{RiderCarrier, Riders, Trains};
use parking_lot::Mutex;
use shared::{CarrierShared, DeviceState, LocalEnd};
use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};
use thalweg_base::log::{Event, Log};
use thalweg_measure::riders::PacketHead;
use thalweg_mesh::{
    Membership,
    carrier_network::{Network, OverlayLegs, PREFIX},
    member_dialer::MemberDialer,
};
use thalweg_net::{RideNetwork, Tun, TunSettings};
use thalweg_units::NodeId;
use thalweg_wire::mesh::Name;
use tokio::task::JoinSet;

/// The longest packet of a device, bytes.
const LONGEST: usize = 65_535;

/// Where packets come from and go to: a [`Tun`], or a test's device.
pub trait Device: PacketSink + 'static {
    /// Reads the next packet of this host. Returns its length.
    ///
    /// # Errors
    /// The device is gone.
    fn next(&self, packet: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

impl PacketSink for Tun {
    fn deliver(&self, packet: &[u8]) -> io::Result<()> {
        self.write(packet)
    }
}

impl Device for Tun {
    fn next(&self, packet: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send {
        self.read(packet)
    }
}

/// The carrier of a node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Carrier(Arc<CarrierShared>);

impl Carrier {
    /// Creates the carrier of the node with this key, as which `dialer` opens channels. Nothing is carried before
    /// [`Self::run`].
    pub fn new(
        settings: CarrierSettings,
        me: NodeId,
        membership: Membership,
        dialer: MemberDialer,
        log: Log,
    ) -> Self {
        let network = Network::of(&membership.mesh());
        let local = LocalEnd::new(settings, network.address(&me));
        let directory = Mutex::default();
        Self(Arc::new(CarrierShared { local, network, me, membership, dialer, log, directory }))
    }

    /// This node's overlay address.
    pub fn address(&self) -> Ipv6Addr {
        self.0.local.own
    }

    /// The settings of the device.
    pub fn tun(&self) -> TunSettings {
        let CarrierSettings { device, congestion, .. } = &self.0.local.settings;
        let (name, congestion) = (device.clone(), congestion.clone());
        TunSettings {
            name,
            mtu: self.0.local.settings.mtu(),
            address: self.0.local.own,
            prefix: PREFIX,
            congestion,
        }
    }

    /// Creates the device and carries packets until it is gone; the node continues without it.
    pub async fn serve(self, trains: Trains) {
        match Tun::create(&self.tun()) {
            Ok(tun) => {
                let (device, address) = (self.0.local.settings.device.clone(), self.0.local.own);
                let up = Event::new("carrier").with("device", device).with("address", address);
                self.0.log.put(up);
                self.run(tun, trains).await;
            }
            Err(why) => self.set_gone(why.to_string()),
        }
    }

    /// Carries packets until the device is gone, by the endpoints of these trains, which must be running.
    pub async fn run(self, device: impl Device, trains: Trains) {
        let device = Arc::new(device);
        *self.0.local.device_state() = DeviceState::Up(Arc::clone(&device) as Arc<dyn PacketSink>);
        let mut sessions = JoinSet::new();
        let mut packet = vec![0; LONGEST];
        let why = loop {
            let length = match device.next(&mut packet).await {
                Ok(length) => length,
                Err(why) => break why,
            };
            let shared = &self.0;
            let Some(partner) = shared.send(&packet[..length]) else { continue };
            // Sessions that have ended need not be kept.
            while sessions.try_join_next().is_some() {}
            sessions.spawn(connect::connect(Arc::clone(shared), partner, trains.clone()));
        };
        let name = &self.0.local.settings.device;
        self.set_gone(format!(
            "the network device `{name}` is gone ({why}); restart the node to create it again"
        ));
    }

    fn set_gone(&self, why: String) {
        self.0.log.put(Event::new("no_carrier").with("why", &why).with("level", "alert"));
        *self.0.local.device_state() = DeviceState::Gone(why);
    }
}

/// The state of a carrier, for `thalweg carrier status`.
impl Carrier {
    pub fn report(&self) -> CarrierReport {
        let partners: Vec<_> = self.0.directory().partners().cloned().collect();
        let one = |partner: &std::sync::Arc<partner::Partner>| {
            let (counts, session) = partner.report();
            PartnerReport { name: partner.name.clone(), address: partner.address, session, counts }
        };
        let members: Vec<_> = partners.iter().map(one).collect();
        let mut counts = RiderCounts::default();
        members.iter().for_each(|member| counts += member.counts);
        let settings = &self.0.local.settings;
        let (is_up, why) = match &*self.0.local.device_state() {
            DeviceState::Up(_) => (true, None),
            DeviceState::Before => (false, Some("the node is starting".to_owned())),
            DeviceState::Gone(why) => (false, Some(why.clone())),
        };
        CarrierReport {
            device: settings.device.clone(),
            address: self.0.local.own,
            mtu: settings.mtu(),
            hold_ms: settings.hold.longest.as_millis() as u64,
            is_up,
            why,
            counts,
            members,
        }
    }
}

/// Chooses which of Thalweg's own connections ride although their routes do not say so.
impl Carrier {
    /// Whether a connection to the node with this key that begins now is to ride although its route does not say so.
    fn chooses(&self, node: NodeId) -> bool {
        let Some(rule) = self.0.local.settings.legs else { return false };
        if !matches!(*self.0.local.device_state(), DeviceState::Up(_)) {
            return false;
        }
        let directory = self.0.directory();
        let partner = directory.partners().find(|partner| partner.key == node).cloned();
        drop(directory);
        partner.is_some_and(|partner| partner.is_measured(&rule))
    }
}

impl CarrierShared {
    /// Sends a packet of this host. Returns the partner if a session to it is to be opened.
    fn send(self: &Arc<Self>, packet: &[u8]) -> Option<Arc<partner::Partner>> {
        let head = PacketHead::read(packet)?;
        // Drops multicast and packets for unknown addresses: the kernel looks for neighbours and routers on any device.
        let IpAddr::V6(to) = head.destination else { return None };
        let partner = self.directory().at(to, self)?;
        partner.send(packet.to_vec(), &head).then_some(partner)
    }
}

impl RiderCarrier for Carrier {
    fn riders(&self, node: NodeId) -> Option<Arc<dyn Riders>> {
        if !matches!(*self.0.local.device_state(), DeviceState::Up(_)) {
            return None;
        }
        let address = self.0.network.address(&node);
        let partner = self.0.directory().at(address, &self.0)?;
        (partner.key == node).then_some(partner as Arc<dyn Riders>)
    }

    fn is_gone(&self) -> bool {
        matches!(*self.0.local.device_state(), DeviceState::Gone(_))
    }

    fn sent(&self) -> Vec<(Name, u64)> {
        let partners: Vec<_> = self.0.directory().partners().cloned().collect();
        let sent =
            |partner: Arc<partner::Partner>| (partner.name.clone(), partner.report().0.sent_bytes);
        partners.into_iter().map(sent).collect()
    }

    fn report(&self) -> serde_json::Value {
        serde_json::to_value(Self::report(self)).unwrap_or_default()
    }
}

/// Tells which connections ride in this node's carrier, and at which addresses.
#[derive(Clone, Debug)]
pub struct CarrierLegs {
    explicit: OverlayLegs,
    carrier: Carrier,
}

impl CarrierLegs {
    /// Connections ride in this node's carrier if their routes say so, or if its settings choose them.
    pub fn of(carrier: Carrier) -> Self {
        Self { explicit: OverlayLegs::in_network(carrier.0.network), carrier }
    }
}

impl RideNetwork for CarrierLegs {
    fn address(&self, node: NodeId) -> io::Result<SocketAddr> {
        self.explicit.address(node)
    }

    fn chooses(&self, node: NodeId) -> bool {
        self.carrier.chooses(node)
    }
}
