//! The overlay: the participants and the estimates of the legs between them, the paper's G_H (§III).

use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::Graph;
use thalweg_wire::mesh::Name;

/// The participants with their indices, and the estimates between them.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// By index: sources first, in the order of the request, then intermediates, the
    /// destination last.
    pub names: Vec<Name>,
    /// The number of sources.
    pub sources: usize,
    /// c′(u,v), where known.
    pub rates: Graph,
    /// Round trips, where known.
    pub rtts: BTreeMap<(u32, u32), Duration>,
}

impl Overlay {
    /// The destination's index.
    pub fn destination(&self) -> u32 {
        (self.names.len().saturating_sub(1)) as u32
    }

    /// The participants that can be intermediates for `source`: all except it and the destination.
    pub fn intermediates(&self, source: u32) -> impl Iterator<Item = u32> {
        (0..self.destination()).filter(move |node| *node != source)
    }
}
