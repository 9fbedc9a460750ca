//! Who may submit to a box.

use crate::Settings;
use std::collections::BTreeSet;
use thalweg_units::NodeId;

/// The clients that a box's settings allow to submit.
#[derive(Clone, Debug)]
pub(super) struct AllowedSubmitters {
    open: bool,
    members: bool,
    keys: BTreeSet<NodeId>,
}

impl AllowedSubmitters {
    /// Creates the rules of these settings.
    pub fn from_settings(settings: &Settings) -> Self {
        let Settings { open, members, keys, .. } = settings;
        Self { open: *open, members: *members, keys: keys.clone() }
    }

    /// Whether this key may submit without being a member's: the box is open, or its settings list the key.
    pub fn admits(&self, key: &NodeId) -> bool {
        self.open || self.keys.contains(key)
    }

    /// Whether this key may submit: [`Self::admits`], or it is that of a mesh member and members may.
    pub fn allows(&self, key: &NodeId, is_member: bool) -> bool {
        self.admits(key) || (self.members && is_member)
    }
}
