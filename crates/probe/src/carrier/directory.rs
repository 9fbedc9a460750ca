//! Who is at which overlay address: the roster's nodes, and those that packets go to.

use super::{partner::Partner, shared::Shared};
use std::{collections::BTreeMap, io, net::Ipv6Addr, sync::Arc};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Name, Roster};

/// Members that packets are under way to or from: each may hold three quarters of a megabyte, of packets that wait and of
/// those of two lives that are not whole. Packets to further members are not sent.
const MOST: usize = 256;

/// By address, for the roster of this version.
#[derive(Debug, Default)]
pub struct Directory {
    version: Option<u64>,
    nodes: BTreeMap<Ipv6Addr, (NodeId, Name)>,
    partners: BTreeMap<Ipv6Addr, Arc<Partner>>,
}

impl Directory {
    /// The partner at this address; `None`: it is no other node's, or there are too many.
    pub(super) fn at(&mut self, address: Ipv6Addr, shared: &Arc<Shared>) -> Option<Arc<Partner>> {
        self.renew(shared);
        if let Some(known) = self.partners.get(&address) {
            return Some(Arc::clone(known));
        }
        let (key, name) = self.nodes.get(&address)?.clone();
        if self.partners.len() >= MOST {
            self.partners.retain(|_, partner| !partner.is_idle());
        }
        if self.partners.len() >= MOST {
            return None;
        }
        let partner: io::Result<_> = Partner::new(Arc::clone(&shared.local), key, name, address);
        let partner = Arc::new(partner.ok()?);
        self.partners.insert(address, Arc::clone(&partner));
        Some(partner)
    }

    /// All that packets went to or came from.
    pub(super) fn partners(&self) -> impl Iterator<Item = &Arc<Partner>> {
        self.partners.values()
    }

    /// Goes by the newest roster.
    fn renew(&mut self, shared: &Shared) {
        let Some(roster) = shared.membership.current() else { return };
        if self.version == Some(roster.version) {
            return;
        }
        self.version = Some(roster.version);
        self.nodes = nodes(&roster, shared);
        let nodes = &self.nodes;
        self.partners
            .retain(|at, partner| nodes.get(at).is_some_and(|(key, _)| *key == partner.key));
    }
}

/// All nodes but this one.
fn nodes(roster: &Roster, shared: &Shared) -> BTreeMap<Ipv6Addr, (NodeId, Name)> {
    let nodes = roster.members.iter().filter_map(|member| Some((member.node?, &member.name)));
    let mut all = BTreeMap::new();
    for (key, name) in nodes.filter(|(key, _)| *key != shared.me) {
        // The first by name has an address that two would have.
        all.entry(shared.network.address(&key)).or_insert_with(|| (key, name.clone()));
    }
    all
}
