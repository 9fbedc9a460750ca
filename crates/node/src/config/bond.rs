//! `[bond]`: bonds of other members, whose streams use several interfaces at once.

use super::{Problem, text};
use serde::Deserialize;
use thalweg_units::ByteSize;

/// The least memory with which one member's streams move: 32 windows of 1 MB.
const LEAST_MEMORY: ByteSize = ByteSize::from_bytes(32_000_000);

/// The settings of [`thalweg_uplinks::bond::Bonds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BondSection {
    /// Whether members may bond to this node at all.
    pub enabled: bool,
    /// The most bonds at a time, of all members together.
    pub max_bonds: usize,
    /// The memory for data under way in all bonds together; no member gets more than half of it.
    #[serde(deserialize_with = "text::one")]
    pub memory: ByteSize,
}

impl Default for BondSection {
    fn default() -> Self {
        Self { enabled: true, max_bonds: 256, memory: ByteSize::from_bytes(1_000_000_000) }
    }
}

/// Reports values that are well-formed but make no sense.
pub(super) fn check(bond: &BondSection, problems: &mut Vec<Problem>) {
    if bond.max_bonds == 0 {
        let what = "0 allows no bonds; to turn bonds off, write `enabled = false`";
        problems.push(Problem::of("bond.max_bonds", what));
    }
    if bond.memory < LEAST_MEMORY {
        let what = format!("at least {LEAST_MEMORY} is needed to move data; write e.g. \"1 GB\"");
        problems.push(Problem::of("bond.memory", what));
    }
}
