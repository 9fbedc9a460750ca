//! Thalweg's own connections by the carrier: when they are chosen although the route says nothing.

use super::{Carrier, shared::Standing};
use std::{io, net::SocketAddr};
use thalweg_mesh::carrier_network::CarriedLegs;
use thalweg_net::Rides;
use thalweg_units::NodeId;

/// Where nodes are for connections that this node's carrier takes.
#[derive(Clone, Debug)]
pub struct Legs {
    explicit: CarriedLegs,
    carrier: Carrier,
}

impl Legs {
    /// By this node's carrier: those whose route says so, and those that its settings choose.
    pub fn of(carrier: Carrier) -> Self {
        Self { explicit: CarriedLegs::in_network(carrier.0.network), carrier }
    }
}

impl Rides for Legs {
    fn at(&self, node: NodeId) -> io::Result<SocketAddr> {
        self.explicit.at(node)
    }

    fn chooses(&self, node: NodeId) -> bool {
        self.carrier.chooses(node)
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
