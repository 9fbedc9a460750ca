//! What a carrier says of itself, for `thalweg carrier status`.

use super::{Carrier, Counts, shared::Standing};
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;
use thalweg_wire::mesh::Name;

/// A node's carrier: the reply to `GET /v1/carrier` of the local API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarrierReport {
    /// The device's name.
    pub device: String,
    /// This node's address.
    pub address: Ipv6Addr,
    /// The longest packet that the device takes, bytes.
    pub mtu: u16,
    /// The longest that a packet waits for a train, milliseconds.
    pub hold_ms: u64,
    /// Whether packets come and go.
    pub is_up: bool,
    /// Why not.
    #[serde(default)]
    pub why: Option<String>,
    /// All members together.
    pub counts: Counts,
    /// Those that packets went to or came from.
    pub members: Vec<PartnerReport>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartnerReport {
    /// Its name.
    pub name: Name,
    /// Its address.
    pub address: Ipv6Addr,
    /// How the session to it is: `open`, `opening`, or `none` and why.
    pub session: String,
    /// What went there and came from there.
    pub counts: Counts,
}

impl Carrier {
    /// How it is now.
    pub fn report(&self) -> CarrierReport {
        let partners: Vec<_> = self.0.directory().partners().cloned().collect();
        let one = |partner: &std::sync::Arc<super::partner::Partner>| {
            let (counts, session) = partner.report();
            PartnerReport { name: partner.name.clone(), address: partner.address, session, counts }
        };
        let members: Vec<_> = partners.iter().map(one).collect();
        let mut counts = Counts::default();
        members.iter().for_each(|member| counts += member.counts);
        let settings = &self.0.local.settings;
        let (is_up, why) = match &*self.0.local.standing() {
            Standing::Up(_) => (true, None),
            Standing::Before => (false, Some("the node is starting".to_owned())),
            Standing::Gone(why) => (false, Some(why.clone())),
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
