//! Which node has which overlay address: the nodes of the roster, and the partners among them.

use super::{partner::Partner, shared::CarrierShared};
use std::{collections::BTreeMap, io, net::Ipv6Addr, sync::Arc};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Name, Roster, RosterRank};

/// The most partners. Each may hold three quarters of a megabyte of waiting packets and of incomplete packets of two
/// epochs. Packets to further members are not sent.
const MOST: usize = 256;

/// Nodes and partners by address, by the roster of this rank.
#[derive(Debug, Default)]
pub struct Directory {
    rank: Option<RosterRank>,
    nodes: BTreeMap<Ipv6Addr, Node>,
    partners: BTreeMap<Ipv6Addr, Arc<Partner>>,
}

/// A node of the roster.
#[derive(Debug)]
struct Node {
    key: NodeId,
    name: Name,
    /// Whether the ports in the setting `open` are open to it.
    is_let_in: bool,
}

impl Directory {
    /// The partner at this address; `None` if it belongs to no other node, or there are too many partners.
    pub(super) fn at(
        &mut self,
        address: Ipv6Addr,
        shared: &Arc<CarrierShared>,
    ) -> Option<Arc<Partner>> {
        self.renew(shared);
        if let Some(known) = self.partners.get(&address) {
            return Some(Arc::clone(known));
        }
        let Node { key, name, is_let_in } = self.nodes.get(&address)?;
        let (key, name, is_let_in) = (*key, name.clone(), *is_let_in);
        if self.partners.len() >= MOST {
            self.partners.retain(|_, partner| !partner.is_idle());
        }
        if self.partners.len() >= MOST {
            return None;
        }
        let partner: io::Result<_> = Partner::new(Arc::clone(&shared.local), key, name, address);
        let partner = Arc::new(partner.ok()?);
        partner.set_let_in(is_let_in);
        self.partners.insert(address, Arc::clone(&partner));
        Some(partner)
    }

    /// All members that packets went to or came from.
    pub(super) fn partners(&self) -> impl Iterator<Item = &Arc<Partner>> {
        self.partners.values()
    }

    /// Follows the newest roster.
    fn renew(&mut self, shared: &CarrierShared) {
        let Some(roster) = shared.membership.current() else { return };
        if self.rank == Some(roster.rank()) {
            return;
        }
        self.rank = Some(roster.rank());
        self.nodes = nodes(&roster, shared);
        let nodes = &self.nodes;
        self.partners
            .retain(|at, partner| nodes.get(at).is_some_and(|node| node.key == partner.key));
        for (at, partner) in &self.partners {
            partner.set_let_in(nodes.get(at).is_some_and(|node| node.is_let_in));
        }
    }
}

/// All nodes but this one.
fn nodes(roster: &Roster, shared: &CarrierShared) -> BTreeMap<Ipv6Addr, Node> {
    let nodes = roster.members.iter().filter_map(|member| Some((member.node?, member)));
    let from = &shared.local.settings.doors.from;
    let mut all = BTreeMap::new();
    for (key, member) in nodes.filter(|(key, _)| *key != shared.me) {
        // If two nodes had the same address, the first by name has it.
        all.entry(shared.network.address(&key)).or_insert_with(|| Node {
            key,
            name: member.name.clone(),
            is_let_in: from.iter().any(|whom| whom.matches(member)),
        });
    }
    all
}
