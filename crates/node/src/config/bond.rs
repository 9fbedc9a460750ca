//! `[bond]`: bonds of other members, whose streams use several of their interfaces at once.

use super::{Problem, text};
use serde::Deserialize;
use thalweg_units::ByteSize;

/// The least that lets one member's streams move: 32 windows of 1 MB.
const LEAST_MEMORY: ByteSize = ByteSize::from_bytes(32_000_000);

/// The settings of [`thalweg_uplinks::bond::Bonds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BondSection {
    /// Whether members may bond to this node at all.
    pub enabled: bool,
    /// Bonds at a time, of all members.
    pub max_bonds: usize,
    /// For what is under way in them, all together; no member has more than half of it.
    #[serde(deserialize_with = "text::one")]
    pub memory: ByteSize,
}

impl Default for BondSection {
    fn default() -> Self {
        Self { enabled: true, max_bonds: 256, memory: ByteSize::from_bytes(1_000_000_000) }
    }
}

/// What is well-formed, and yet cannot be meant.
pub(super) fn check(bond: &BondSection, problems: &mut Vec<Problem>) {
    if bond.max_bonds == 0 {
        let what = "with no bond at a time nobody has one; to take none, write `enabled = false`";
        problems.push(Problem::of("bond.max_bonds", what));
    }
    if bond.memory < LEAST_MEMORY {
        let what = format!("less than {LEAST_MEMORY} moves nothing; write e.g. \"1 GB\"");
        problems.push(Problem::of("bond.memory", what));
    }
}
