//! All bonds of a process, for its status and metrics.

use super::{bonding::Bonding, status::LinkStatus};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

/// One bond as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BondStatus {
    /// The member: its name, or the beginning of its key.
    pub member: String,
    /// Streams that are open, or not settled yet.
    pub streams: usize,
    pub links: Vec<LinkStatus>,
}

/// All bonds of a process, those of each of its diallers.
#[derive(Debug, Default)]
pub struct BondRegistry(Mutex<Vec<Bonding>>);

impl BondRegistry {
    /// Creates an empty watch.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Adds bonds, and keeps them alive.
    pub fn add(&self, bonds: &Bonding) {
        self.0.lock().push(bonds.clone());
    }

    /// [`Bonding::report`] of all bonds.
    pub fn report(&self) -> Vec<Value> {
        let of = |bonds: &Bonding| bonds.report().as_array().cloned().unwrap_or_default();
        self.all().iter().flat_map(of).collect()
    }

    /// All bonds as they are now.
    pub fn shown(&self) -> Vec<BondStatus> {
        self.all().iter().flat_map(Bonding::shown).collect()
    }

    /// Drops all bonds, so that they end.
    pub fn end(&self) {
        self.0.lock().clear();
    }

    fn all(&self) -> Vec<Bonding> {
        self.0.lock().clone()
    }
}
