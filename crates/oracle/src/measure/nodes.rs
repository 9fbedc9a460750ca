//! Dense indices of members.

use std::collections::{HashMap, HashSet};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Member, Name, Role, Roster};

/// A member's index in all tables of the service.
pub(super) type Slot = u32;

/// One member.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The member's principal.
    pub key: NodeId,
    pub name: Name,
    /// The node relays and has an address.
    pub is_relay: bool,
    pub is_oracle: bool,
    /// False if the member was revoked; the slot is then free.
    pub is_member: bool,
}

/// The assignment of slots. A slot is reused only after its member was revoked, so there are no more slots than the
/// most members at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    version: u64,
    nodes: Vec<Node>,
    /// By either of a member's keys.
    by_key: HashMap<NodeId, Slot>,
    by_name: HashMap<Name, Slot>,
}

impl Nodes {
    /// The roster's version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The number of slots.
    pub fn len(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// The member in this slot; `None` if it was revoked.
    pub fn get(&self, slot: Slot) -> Option<&Node> {
        self.nodes.get(slot as usize).filter(|node| node.is_member)
    }

    /// The member with this key.
    pub fn by_key(&self, key: &NodeId) -> Option<Slot> {
        self.by_key.get(key).copied()
    }

    /// The member with this name.
    pub fn by_name(&self, name: &Name) -> Option<Slot> {
        self.by_name.get(name).copied()
    }

    /// Whether a member is in this slot and may relay.
    pub fn is_relay(&self, slot: Slot) -> bool {
        self.get(slot).is_some_and(|node| node.is_relay)
    }

    /// All members, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Node)> {
        (0..).zip(&self.nodes).filter(|(_, node)| node.is_member)
    }

    /// The member's name for messages, even after it was revoked.
    pub fn name(&self, slot: Slot) -> String {
        self.nodes.get(slot as usize).map_or_else(String::new, |node| node.name.to_string())
    }

    /// Takes over a roster. Returns the slots of removed members, whose data must be forgotten before the next
    /// measurement.
    pub fn follow(&mut self, roster: &Roster) -> Vec<Slot> {
        let members: HashSet<NodeId> = roster.members.iter().map(Member::principal).collect();
        let gone = |(slot, node): (Slot, &mut Node)| {
            let goes = node.is_member && !members.contains(&node.key);
            node.is_member &= !goes;
            node.is_relay &= !goes;
            goes.then_some(slot)
        };
        let gone: Vec<Slot> = (0..).zip(&mut self.nodes).filter_map(gone).collect();
        let known: HashMap<NodeId, Slot> = self.iter().map(|(slot, n)| (n.key, slot)).collect();
        let free = (0..).zip(&self.nodes).filter(|(_, n)| !n.is_member).map(|(slot, _)| slot);
        let mut free: Vec<Slot> = free.collect();
        self.by_key.clear();
        self.by_name.clear();
        for member in &roster.members {
            let slot = known.get(&member.principal()).copied();
            self.place(member, slot.or_else(|| free.pop()));
        }
        self.version = roster.version;
        gone
    }

    fn place(&mut self, member: &Member, slot: Option<Slot>) {
        let node = Node {
            key: member.principal(),
            name: member.name.clone(),
            is_relay: member.is(Role::Relay) && member.node.is_some() && member.is_dialled(),
            is_oracle: member.is(Role::Oracle),
            is_member: true,
        };
        let slot = slot.unwrap_or(self.len());
        match self.nodes.get_mut(slot as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        let keys = member.node.into_iter().chain([member.client]);
        self.by_key.extend(keys.map(|key| (key, slot)));
        self.by_name.insert(member.name.clone(), slot);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use thalweg_units::WallTime;

    pub fn member(name: &str, key: u8) -> Member {
        Member {
            name: name.parse().unwrap(),
            node: Some(NodeId::from_bytes([key; 32])),
            client: NodeId::from_bytes([key + 100; 32]),
            addresses: vec!["192.0.2.1:7373".parse().unwrap()],
            roles: [Role::Relay].into(),
            tags: [].into(),
        }
    }

    pub fn roster(version: u64, members: Vec<Member>) -> Roster {
        let date = WallTime::from_unix_nanos(0);
        Roster {
            version,
            not_before: date,
            expiry: date,
            members,
            rules: vec![],
            endorsement: None,
            predecessor: None,
        }
    }

    #[test]
    fn a_slot_is_reused_only_after_its_member_is_revoked() {
        let mut nodes = Nodes::default();
        let (a, b, c) = (member("a", 1), member("b", 2), member("c", 3));
        assert!(nodes.follow(&roster(1, vec![a.clone(), b.clone()])).is_empty());
        assert!(nodes.follow(&roster(2, vec![a.clone(), b.clone(), c.clone()])).is_empty());
        let slot = |nodes: &Nodes, m: &Member| nodes.by_key(&m.principal());
        assert_eq!([slot(&nodes, &a), slot(&nodes, &b), slot(&nodes, &c)], [0, 1, 2].map(Some));
        assert_eq!(nodes.follow(&roster(3, vec![a, c.clone()])), [1]);
        assert_eq!((slot(&nodes, &b), nodes.is_relay(1)), (None, false));
        let d = member("d", 4);
        assert!(nodes.follow(&roster(4, vec![c, d.clone()])).contains(&0));
        assert!(slot(&nodes, &d).is_some() && nodes.len() == 3, "a free slot was taken");
        assert_eq!(nodes.by_key(&d.client), slot(&nodes, &d), "either key is the member's");
    }
}
