//! How many channels of each protocol are open: of all, and of one member or source.
//!
//! A place is taken before a byte of a channel is read, whatever its protocol, and held to its end. The services have bounds
//! of their own for what a channel asks for; these here bound channels that ask for nothing. When a room is full, a
//! newcomer gets a place of the party that holds the most ([`Crowd`]).

use std::{net::IpAddr, time::Instant};
use thalweg_base::{
    budget::PeerKey,
    crowd::{Bounds, Crowd, Seat},
    peer_source::source_of,
};
use thalweg_mesh::MeshPeer;
use thalweg_net::channel::Protocol;

/// A channel's place; free again when this is dropped.
pub type Place = Seat<PeerKey>;

/// The rooms of all protocols.
#[derive(Debug)]
pub struct Rooms {
    measure: Crowd<PeerKey>,
    object: Crowd<PeerKey>,
    cast: Crowd<PeerKey>,
    bond: Crowd<PeerKey>,
    probe: Crowd<PeerKey>,
    stream: Crowd<PeerKey>,
    submit: Crowd<PeerKey>,
    strangers: Crowd<PeerKey>,
}

/// So many channels in all, and of one party.
fn room(all: usize, each: usize) -> Crowd<PeerKey> {
    Crowd::new(Bounds { all, each, grace: None })
}

impl Default for Rooms {
    /// An idle channel takes about 20 kB, one that has begun a request up to 90 kB.
    fn default() -> Self {
        Self {
            // One flow is measured at a time; the others are told so.
            measure: room(512, 16),
            // The places of one member, and those that wait for one: `thalweg_files`.
            object: room(1024, 192),
            // The legs of one member, and control channels beside them: `thalweg_cast`.
            cast: room(2048, 128),
            // Eight bonds of sixteen links, and links that are refused.
            bond: room(2048, 160),
            probe: room(1024, 32),
            stream: room(2048, 128),
            submit: room(1024, 64),
            // A university behind one address: a channel lasts for some round trips.
            strangers: room(1024, 128),
        }
    }
}

impl Rooms {
    /// A place for a channel; `Err`: there is none. A channel of a relay or an oracle has none here: these count theirs
    /// before they read, by quotas and by their own bounds.
    pub fn enter(
        &self,
        protocol: Protocol,
        peer: Option<&MeshPeer>,
        from: IpAddr,
    ) -> Result<Option<Place>, Crowded> {
        let room = match (protocol, peer) {
            (Protocol::Relay | Protocol::Api | Protocol::Join, _) => return Ok(None),
            (Protocol::Measure, _) => &self.measure,
            (Protocol::Object, _) => &self.object,
            (Protocol::Cast, _) => &self.cast,
            (Protocol::Bond, _) => &self.bond,
            (Protocol::Probe, _) => &self.probe,
            (Protocol::Stream, _) => &self.stream,
            (Protocol::Submit, Some(_)) => &self.submit,
            (Protocol::Submit, None) => &self.strangers,
        };
        let party = match peer {
            Some(peer) => PeerKey::Node(peer.member().principal()),
            None => PeerKey::Address(source_of(from)),
        };
        room.enter(party, 1, Instant::now()).map(Some).ok_or(Crowded)
    }
}

/// All places for this party are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

/// Ends when the place was given to another; never without one.
pub async fn evicted(place: Option<&Place>) {
    match place {
        Some(place) => place.evicted().await,
        None => std::future::pending().await,
    }
}
