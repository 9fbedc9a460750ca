//! Thalweg's own connections by the carrier: TCP to a member's overlay address, and when that is chosen.

use super::{Carrier, Network, shared::Standing};
use std::{io, net::SocketAddr};
use thalweg_net::{Rides, source_for};
use thalweg_units::NodeId;

/// The port of every node at its overlay address: no address translation is on the way, and nobody else is there.
pub const PORT: u16 = crate::config::PORT;

/// What a host without a carrier lacks.
const NONE: &str = "this host has no carrier: that takes `[carrier] enabled = true` in the settings of its node, and the \
                    node running, with CAP_NET_ADMIN (`thalweg carrier status`)";

/// Where nodes are for connections that ride.
#[derive(Clone, Debug)]
pub struct Legs {
    network: Network,
    carrier: Option<Carrier>,
}

impl Legs {
    /// In the mesh with this key, for those whose route says so. Any process of a host whose node has a carrier has one.
    pub fn named(mesh: &NodeId) -> Self {
        Self { network: Network::of(mesh), carrier: None }
    }

    /// That this host has a carrier.
    ///
    /// # Errors
    /// What it lacks.
    pub fn check(&self) -> io::Result<()> {
        // What leaves for there from another address leaves by no carrier.
        match source_for(self.network.any()).is_ok_and(|own| self.network.has(own)) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::NetworkUnreachable, NONE)),
        }
    }

    /// By this node's carrier: also those that its settings choose.
    pub fn of(carrier: Carrier) -> Self {
        Self { network: carrier.0.network, carrier: Some(carrier) }
    }
}

impl Rides for Legs {
    fn at(&self, node: NodeId) -> io::Result<SocketAddr> {
        self.check()?;
        Ok((self.network.address(&node), PORT).into())
    }

    fn chooses(&self, node: NodeId) -> bool {
        self.carrier.as_ref().is_some_and(|carrier| carrier.chooses(node))
    }
}

impl Carrier {
    /// Whether a connection to the node with this key that begins now is to ride although its route says nothing.
    fn chooses(&self, node: NodeId) -> bool {
        let Some(rule) = self.0.local.settings.legs else { return false };
        if !matches!(*self.0.local.standing(), Standing::Up(_)) {
            return false;
        }
        let directory = self.0.directory();
        let partner = directory.partners().find(|partner| partner.key == node).cloned();
        drop(directory);
        partner.is_some_and(|partner| partner.is_measured(&rule))
    }
}
