//! What is shown of the interfaces.

use super::{
    super::{doubt::Why, estimate::Estimate},
    Present, Table,
};
use thalweg_bond::Tier;
use thalweg_units::WallTime;

/// How an interface is, for who asks.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The kernel's index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// When it is used.
    pub tier: Tier,
    /// What it brings.
    pub estimate: Estimate,
    /// Bytes both ways in this period of its cap, or of the month.
    pub used: u64,
    /// Its cap, bytes.
    pub cap: Option<u64>,
    /// Whether its cap leaves nothing for another connection until the period is over.
    pub is_used_up: bool,
    /// Why it is left out for a while.
    pub doubted: Option<Why>,
    /// Why its last probe told nothing.
    pub probe_failure: Option<String>,
    /// Connections by it.
    pub connections: usize,
    /// What they are still expected to move, bytes.
    pub load: u64,
}

impl Table {
    /// The interfaces as they are.
    pub fn show(&self, today: WallTime) -> Vec<Shown> {
        let shown = |present: &Present| {
            let policy = self.settings.policy(&present.name);
            Shown {
                index: present.index,
                name: present.name.clone(),
                tier: policy.tier,
                estimate: self.estimates.get(&present.name).cloned().unwrap_or_default(),
                used: self.used(&present.name, today),
                cap: policy.cap.map(|cap| cap.bytes),
                is_used_up: !self.has_left(&present.name, today),
                doubted: self.doubts.of(present.index, self.ticked),
                probe_failure: self.probe_failure(&present.name),
                connections: self.by(present.index).count(),
                load: self.load(present.index),
            }
        };
        self.present.iter().map(shown).collect()
    }
}
