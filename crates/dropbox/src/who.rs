//! Who may submit.

use crate::Settings;
use std::collections::BTreeSet;
use thalweg_units::NodeId;

/// The clients that a box's settings allow to submit.
#[derive(Clone, Debug)]
pub(super) struct Who {
    open: bool,
    members: bool,
    keys: BTreeSet<NodeId>,
}

impl Who {
    /// Those of these settings.
    pub fn of(settings: &Settings) -> Self {
        let Settings { open, members, keys, .. } = settings;
        Self { open: *open, members: *members, keys: keys.clone() }
    }

    /// Whether a key that is no member's may.
    pub fn admits(&self, key: &NodeId) -> bool {
        self.open || self.keys.contains(key)
    }

    /// Whether this key may.
    pub fn may(&self, key: &NodeId, is_member: bool) -> bool {
        self.admits(key) || (self.members && is_member)
    }
}
