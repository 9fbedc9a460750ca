//! Overlay addresses of the carrier, computed from keys, and connections that use them.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};
use thalweg_net::{RideNetwork, source_for};
use thalweg_units::NodeId;
use thalweg_wire::mesh::PORT;

/// The length of the prefix that is routed to the device: one network per mesh.
pub const PREFIX: u8 = 48;

/// The overlay network of a mesh: unique local addresses (RFC 4193), whose 40 bits of "global ID" are a hash of the
/// mesh's key. The last 64 bits of a node's address are a hash of the node's key.
///
/// Among 10,000 nodes two share an address with a probability of 3 in 10^12; then the first by name has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    head: [u8; 8],
}

impl Network {
    /// The network of the mesh with this key.
    pub fn of(mesh: &NodeId) -> Self {
        let hash = blake3::derive_key("thalweg carrier network 1", mesh.as_bytes());
        let mut head = [0; 8];
        head[0] = 0xfd;
        head[1..6].copy_from_slice(&hash[..5]);
        Self { head }
    }

    /// Whether this is an address of the network.
    pub fn has(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V6(ip) if ip.octets()[..6] == self.head[..6])
    }

    /// An address of the network that belongs to no node.
    pub fn any(&self) -> IpAddr {
        let mut address = [0; 16];
        address[..8].copy_from_slice(&self.head);
        // Not the network's own address, to which no program may send (RFC 4291 §2.6.1).
        address[15] = 1;
        address.into()
    }

    /// The address of the node whose daemon has this key.
    pub fn address(&self, node: &NodeId) -> Ipv6Addr {
        let hash = blake3::derive_key("thalweg carrier address 1", node.as_bytes());
        let mut address = [0; 16];
        address[..8].copy_from_slice(&self.head);
        address[8..].copy_from_slice(&hash[..8]);
        address.into()
    }
}

/// What a host without a carrier lacks.
const NONE: &str = "this host has no carrier: set `[carrier] enabled = true` in its node's \
                    settings, and run the node with CAP_NET_ADMIN (see `thalweg carrier status`)";

/// Connections of routes that ride explicitly (`%ride`): TCP to members' overlay addresses.
///
/// Any process of a host whose node has a carrier can make them.
#[derive(Clone, Copy, Debug)]
pub struct OverlayLegs {
    network: Network,
}

impl OverlayLegs {
    /// Connections in the mesh with this key.
    pub fn of(mesh: &NodeId) -> Self {
        Self { network: Network::of(mesh) }
    }

    /// Connections in this overlay network.
    pub fn in_network(network: Network) -> Self {
        Self { network }
    }

    /// Checks that this host has a carrier.
    ///
    /// # Errors
    /// What this host lacks.
    pub fn check(&self) -> io::Result<()> {
        // Packets that would leave from another address go through no carrier.
        match source_for(self.network.any()).is_ok_and(|own| self.network.has(own)) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::NetworkUnreachable, NONE)),
        }
    }
}

impl RideNetwork for OverlayLegs {
    fn address(&self, node: NodeId) -> io::Result<SocketAddr> {
        self.check()?;
        Ok((self.network.address(&node), PORT).into())
    }

    fn chooses(&self, _: NodeId) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> NodeId {
        NodeId::from_bytes([byte; 32])
    }

    /// Nodes of different versions must agree, so addresses never change.
    #[test]
    fn an_address_follows_from_both_keys_and_never_changes() {
        let network = Network::of(&key(1));
        let address = network.address(&key(2));
        assert!(address.is_unique_local());
        assert_eq!(address.segments()[3], 0);
        assert!(network.has(address.into()) && !Network::of(&key(3)).has(address.into()));
        assert!(!network.has([10, 0, 0, 1].into()) && network.has(network.any()));
        assert_eq!(address, Network::of(&key(1)).address(&key(2)));
        let [other_mesh, other_node] =
            [Network::of(&key(3)).address(&key(2)), network.address(&key(3))];
        assert_eq!(other_mesh.segments()[4..], address.segments()[4..]);
        assert_ne!(other_mesh, address);
        assert_eq!(other_node.segments()[..4], address.segments()[..4]);
        assert_ne!(other_node, address);
    }
}
