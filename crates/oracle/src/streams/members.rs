//! The roster's members, by key and by name.

use std::collections::HashMap;
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Member, MemberPattern, Name, Roster};

/// The present members.
#[derive(Debug, Default)]
pub(super) struct Members {
    version: u64,
    by_key: HashMap<NodeId, Member>,
    by_name: HashMap<Name, NodeId>,
}

impl Members {
    /// Adopts a roster. Returns whether it is new.
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

    /// The member with this key.
    pub fn get(&self, key: &NodeId) -> Option<&Member> {
        self.by_key.get(key)
    }

    /// The key of the member with this name.
    pub fn by_name(&self, name: &Name) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// The name of the member with this key.
    pub fn name(&self, key: &NodeId) -> Option<&Name> {
        self.get(key).map(|member| &member.name)
    }

    /// Whether one of these patterns matches the member; an invalid pattern matches nobody.
    pub fn is_allowed(&self, key: &NodeId, patterns: &[String]) -> bool {
        let mut patterns = patterns.iter().filter_map(|text| text.parse::<MemberPattern>().ok());
        self.get(key).is_some_and(|member| patterns.any(|pattern| pattern.matches(member)))
    }
}
