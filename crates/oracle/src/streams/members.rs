//! The roster's members, by key and by name.

use std::collections::HashMap;
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Member, Name, Roster};

/// Who is a member now.
#[derive(Debug, Default)]
pub(super) struct Members {
    version: u64,
    by_key: HashMap<NodeId, Member>,
    by_name: HashMap<Name, NodeId>,
}

impl Members {
    /// Takes the roster over: whether it is another one.
    pub fn follow(&mut self, roster: &Roster) -> bool {
        if self.version == roster.version {
            return false;
        }
        self.version = roster.version;
        let all = || roster.members.iter().map(|member| (member.principal(), member));
        self.by_key = all().map(|(key, member)| (key, member.clone())).collect();
        self.by_name = all().map(|(key, member)| (member.name.clone(), key)).collect();
        true
    }

    pub fn get(&self, key: &NodeId) -> Option<&Member> {
        self.by_key.get(key)
    }

    pub fn by_name(&self, name: &Name) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    pub fn name(&self, key: &NodeId) -> Option<&Name> {
        self.get(key).map(|member| &member.name)
    }

    /// Whether one of these means the member: its name, `@TAG`, `*`.
    pub fn is_meant(&self, key: &NodeId, whom: &[String]) -> bool {
        self.get(key).is_some_and(|member| {
            whom.iter().any(|whom| match whom.strip_prefix('@') {
                Some(tag) => member.tags.iter().any(|own| own.as_str() == tag),
                None => whom == "*" || whom == member.name.as_str(),
            })
        })
    }
}
