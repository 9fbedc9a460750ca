//! The state of a carrier, for `thalweg carrier status`.

use super::RiderCounts;
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;
use thalweg_wire::mesh::Name;

/// The state of a node's carrier: the reply to `GET /v1/carrier` of the local API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarrierReport {
    pub device: String,
    /// This node's overlay address.
    pub address: Ipv6Addr,
    /// The longest packet that the device takes, bytes.
    pub mtu: u16,
    /// The longest that a packet waits for a train, milliseconds.
    pub hold_ms: u64,
    /// Whether packets are carried.
    pub is_up: bool,
    /// Why they are not.
    #[serde(default)]
    pub why: Option<String>,
    /// The sums over all members.
    pub counts: RiderCounts,
    /// The members that packets went to or came from.
    pub members: Vec<PartnerReport>,
}

/// The state of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartnerReport {
    pub name: Name,
    pub address: Ipv6Addr,
    /// The state of the session: `open`, `opening`, or `none` and the reason.
    pub session: String,
    /// What was sent to the member and received from it.
    pub counts: RiderCounts,
}
