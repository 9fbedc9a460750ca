//! Decides which nodes forward through rings, and how they share the repair symbols.

use super::plan::ReceiverPlan;
use crate::{
    ring::{FeedRole, NodeRing, ProofCache, RepairEncoder},
    store::Store,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};
use thalweg_fountain::RING_BYTES;
use thalweg_net::PrivateKey;
use thalweg_plan::tree::depth::ChainLoss;
use thalweg_units::Rate;
use thalweg_wire::{
    Signer as _,
    cast::{RingTerms, ServiceMode},
    mesh::Name,
};

/// The maximum number of parts into which each block's repair symbols are divided: with more, a part would be too
/// small.
const MAX_PARTS: u32 = 8;

/// How receivers forward what they receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// Whether receivers forward symbols as they arrive, through rings, as in ROMA; otherwise they send requested
    /// symbols from their disks.
    pub by_rings: bool,
    /// The maximum number of bytes of symbols in a ring.
    pub ring_bytes: u64,
    /// Relays: nodes that forward through a ring and store nothing.
    pub via: Vec<Name>,
    /// Hosts that send less than this over all legs together do not forward (ROMA §VI: hosts limited to 10 Mbit/s were
    /// leaves only).
    pub leaf_below: Option<Rate>,
}

impl Default for Forwarding {
    /// From disks, without relays; rings of 1 MB.
    fn default() -> Self {
        Self { by_rings: false, ring_bytes: RING_BYTES as u64, via: Vec::new(), leaf_below: None }
    }
}

/// The source's own ring, and the terms for the rings of others.
pub struct Rings {
    /// The source's ring.
    pub node: Arc<NodeRing>,
    pub terms: BTreeMap<Name, RingTerms>,
    pub relays: BTreeSet<Name>,
}

impl Forwarding {
    /// Whether any node streams. A node takes everything from a streaming parent, so it has only one parent then.
    pub const fn streams(&self) -> bool {
        self.by_rings || !self.via.is_empty()
    }

    /// The loss that the plan assumes for each ring in a chain: that of ROMA's Fig. 15, because there is no better
    /// measurement of this implementation. Stores lose nothing.
    pub const fn loss(&self) -> ChainLoss {
        if self.streams() { ChainLoss::FIGURE_15 } else { ChainLoss::NONE }
    }

    /// Decides for each parent whether it streams or is asked for symbols. Relays stream, and with [`Self::by_rings`]
    /// all nodes do. A node takes everything from a streaming parent, so it has no second parent beside it.
    pub fn decide(&self, parts: &mut BTreeMap<Name, ReceiverPlan>) {
        for (name, part) in parts {
            let is_relay = self.via.contains(name);
            for candidate in &mut part.candidates {
                let from_relay = candidate.name.as_ref().is_some_and(|c| self.via.contains(c));
                let streams = self.by_rings || is_relay || from_relay;
                candidate.want = if streams { ServiceMode::Stream } else { ServiceMode::Pull };
            }
            if part.candidates.first().is_some_and(|first| first.want == ServiceMode::Stream) {
                part.at_once = 1;
                continue;
            }
            part.candidates.sort_by_key(|candidate| candidate.want == ServiceMode::Stream);
            let asked = part.candidates.iter().filter(|c| c.want == ServiceMode::Pull).count();
            part.at_once = part.at_once.min(u32::try_from(asked).unwrap_or(u32::MAX)).max(1);
        }
    }

    /// Creates the source's ring, and the terms for the other nodes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn rings(
        &self,
        store: &Arc<Store>,
        parts: &BTreeMap<Name, ReceiverPlan>,
        key: &Arc<PrivateKey>,
    ) -> io::Result<Rings> {
        let first =
            |part: &ReceiverPlan| part.candidates.first().and_then(|first| first.name.clone());
        let givers: BTreeSet<Name> = parts.values().filter_map(first).collect();
        let giving = givers.iter().filter(|giver| !self.via.contains(giver));
        // Fits: at most 7.
        let others = giving.count().min(MAX_PARTS as usize - 1) as u32;
        let terms = |part| RingTerms { bytes: self.ring_bytes, part, parts: others + 1 };
        let of = |(at, name): (u32, &Name)| (name.clone(), terms(1 + at % others.max(1)));
        // Planned parents come first, so that neighbours in the order get different parts.
        let rest = parts.keys().filter(|name| !givers.contains(*name));
        let order = givers.iter().chain(rest);
        let proofs = Arc::new(ProofCache::new(&store.known.geometry));
        let repairs = RepairEncoder::for_source(Arc::clone(key), key.id(), Arc::clone(&proofs));
        let own = RingTerms { part: 0, ..terms(0) };
        Ok(Rings {
            node: NodeRing::new(Arc::clone(store), repairs, proofs, own, FeedRole::Source)?,
            terms: (0..).zip(order).map(of).collect(),
            relays: self.via.iter().cloned().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::cast::Candidate;

    fn part(names: &[&str]) -> ReceiverPlan {
        let candidate = |name: &&str| {
            let name = (*name != "source").then(|| name.parse().unwrap());
            Candidate { name, bps: None, want: ServiceMode::Pull }
        };
        let candidates = names.iter().map(candidate).collect();
        ReceiverPlan { candidates, at_once: 2, ..ReceiverPlan::default() }
    }

    fn wants(part: &ReceiverPlan) -> Vec<(String, ServiceMode)> {
        let name = |c: &Candidate| c.name.as_ref().map_or("source".to_owned(), Name::to_string);
        part.candidates.iter().map(|c| (name(c), c.want)).collect()
    }

    #[test]
    fn a_streaming_parent_is_the_only_parent() {
        let via = vec!["r".parse().unwrap()];
        let forwarding = Forwarding { via, ..Forwarding::default() };
        let mut parts: BTreeMap<Name, ReceiverPlan> = [
            ("a".parse().unwrap(), part(&["r", "source", "b"])),
            ("b".parse().unwrap(), part(&["source", "r", "a"])),
            ("r".parse().unwrap(), part(&["source", "a"])),
        ]
        .into();
        forwarding.decide(&mut parts);
        let part = |name: &str| &parts[&name.parse::<Name>().unwrap()];
        let (pull, stream) = (ServiceMode::Pull, ServiceMode::Stream);
        let of = |all: &[(&str, ServiceMode)]| {
            all.iter().map(|(name, want)| (name.to_string(), *want)).collect::<Vec<_>>()
        };
        assert_eq!(wants(part("a")), of(&[("r", stream), ("source", pull), ("b", pull)]));
        assert_eq!(wants(part("b")), of(&[("source", pull), ("a", pull), ("r", stream)]));
        assert_eq!(wants(part("r")), of(&[("source", stream), ("a", stream)]));
        assert_eq!(["a", "b", "r"].map(|name| part(name).at_once), [1, 2, 1]);
    }
}
