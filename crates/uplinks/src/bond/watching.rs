//! A host's bonds, seen by who does not keep them: for the status and metrics of a process.

use super::{bonding::Bonding, status::LinkStatus};
use serde::Serialize;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

/// One bond, as it is now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// The member: its name, or the beginning of its key.
    pub member: String,
    /// Streams that are open, or not settled.
    pub streams: usize,
    /// Its links.
    pub links: Vec<LinkStatus>,
}

/// All bonds of a process: of each of its diallers.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Vec<Bonding>>);

impl Watch {
    /// With none yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// These as well, which it keeps from now on.
    pub fn add(&self, bonds: &Bonding) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bonds.clone());
    }

    /// As [`Bonding::report`], of all.
    pub fn report(&self) -> Vec<Value> {
        let of = |bonds: &Bonding| bonds.report().as_array().cloned().unwrap_or_default();
        self.all().iter().flat_map(of).collect()
    }

    /// The bonds there are now.
    pub fn shown(&self) -> Vec<Shown> {
        self.all().iter().flat_map(Bonding::shown).collect()
    }

    /// They end.
    pub fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn all(&self) -> Vec<Bonding> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
