//! Bounds on the open channels of each protocol: in total, and of one member or source.
//!
//! A place is taken before a byte of a channel is read, and held until the channel ends. The services bound what a
//! channel requests; these bounds also cover channels that request nothing. When all places of a protocol are taken, a
//! newcomer gets one of the party that holds the most ([`FairSlots`]).

use std::{net::IpAddr, time::Instant};
use thalweg_base::{
    budget::PeerKey,
    fair_slots::{Bounds, FairSlots, Slot},
    peer_source::source_of,
};
use thalweg_mesh::MeshPeer;
use thalweg_net::channel::Protocol;

/// The place of a channel; freed when it is dropped.
pub type ChannelSlot = Slot<PeerKey>;

/// The places of all protocols.
#[derive(Debug)]
pub struct ChannelLimits {
    measure: FairSlots<PeerKey>,
    object: FairSlots<PeerKey>,
    cast: FairSlots<PeerKey>,
    bond: FairSlots<PeerKey>,
    probe: FairSlots<PeerKey>,
    stream: FairSlots<PeerKey>,
    doctor: FairSlots<PeerKey>,
    reach: FairSlots<PeerKey>,
    submit: FairSlots<PeerKey>,
    strangers: FairSlots<PeerKey>,
}

/// Places for this many channels in total and of one party.
fn room(all: usize, each: usize) -> FairSlots<PeerKey> {
    FairSlots::new(Bounds { all, each, grace: None })
}

impl Default for ChannelLimits {
    /// An idle channel takes about 20 kB, one that has begun a request up to 90 kB.
    fn default() -> Self {
        Self {
            // One flow is measured at a time; further channels are told that they wait.
            measure: room(512, 16),
            // One member's places in `thalweg_files`, and the channels that wait for a place there.
            object: room(1024, 192),
            // One member's legs and their control channels in `thalweg_cast`.
            cast: room(2048, 128),
            // Eight bonds of sixteen links, and links that are refused.
            bond: room(2048, 160),
            probe: room(1024, 32),
            stream: room(2048, 128),
            // One command opens up to ten at a time.
            doctor: room(256, 16),
            // Standing channels: one of each member, and those that become reverse connections within seconds.
            reach: room(8192, 64),
            submit: room(1024, 64),
            // Many users may share an address, as at a university; a channel lasts for a few round trips.
            strangers: room(1024, 128),
        }
    }
}

impl ChannelLimits {
    /// Takes a place for a channel; `Err` if there is none. Returns `Ok(None)` for channels of relays and oracles,
    /// which bound their channels themselves before they read.
    pub fn enter(
        &self,
        protocol: Protocol,
        peer: Option<&MeshPeer>,
        from: IpAddr,
    ) -> Result<Option<ChannelSlot>, AllSlotsTaken> {
        let room = match (protocol, peer) {
            (Protocol::Relay | Protocol::Api | Protocol::Join, _) => return Ok(None),
            (Protocol::Measure, _) => &self.measure,
            (Protocol::Object, _) => &self.object,
            (Protocol::Cast, _) => &self.cast,
            (Protocol::Bond, _) => &self.bond,
            (Protocol::Probe, _) => &self.probe,
            (Protocol::Stream, _) => &self.stream,
            (Protocol::Doctor, _) => &self.doctor,
            (Protocol::Reach, _) => &self.reach,
            (Protocol::Submit, Some(_)) => &self.submit,
            (Protocol::Submit, None) => &self.strangers,
        };
        let party = match peer {
            Some(peer) => PeerKey::Node(peer.member().principal()),
            None => PeerKey::Address(source_of(from)),
        };
        room.enter(party, 1, Instant::now()).map(Some).ok_or(AllSlotsTaken)
    }
}

/// All places that this party could get are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllSlotsTaken;

/// Completes when the place is evicted; never if there is no place.
pub async fn evicted(place: Option<&ChannelSlot>) {
    match place {
        Some(place) => place.evicted().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_party_gets_a_bounded_number_of_places_of_each_protocol() {
        let rows = [
            (Protocol::Measure, 16),
            (Protocol::Object, 192),
            (Protocol::Cast, 128),
            (Protocol::Bond, 160),
            (Protocol::Probe, 32),
            (Protocol::Stream, 128),
            (Protocol::Doctor, 16),
            (Protocol::Reach, 64),
            (Protocol::Submit, 128),
        ];
        let rooms = ChannelLimits::default();
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([198, 51, 100, 1]));
        for (protocol, bound) in rows {
            let enter = |_| rooms.enter(protocol, None, one).ok().flatten();
            let places: Vec<ChannelSlot> = (0..=bound).map_while(enter).collect();
            assert_eq!(places.len(), bound, "{protocol:?}");
            assert!(rooms.enter(protocol, None, other).is_ok(), "{protocol:?}: another party");
        }
    }
}
