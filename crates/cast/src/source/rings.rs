//! Who hands on by a ring, and what of it is whose.

use super::plan::Part;
use crate::{
    ring::{NodeRing, PageBook, Repairs, Start},
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
    cast::{RingTerms, Want},
    mesh::Name,
};

/// Parts of each block's repair symbols at most: with more, none has enough.
const PARTS: u32 = 8;

/// How receivers hand on what comes to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// As it comes, by a ring, as ROMA has it; else from their disks, what they are asked for.
    pub by_rings: bool,
    /// The most bytes of symbols that wait in a ring.
    pub ring_bytes: u64,
    /// Nodes that hand on by a ring and keep nothing.
    pub via: Vec<Name>,
    /// Whoever sends less, of all legs together, hands nothing on (ROMA §VI: hosts limited to 10 Mbit/s were leaves
    /// only).
    pub leaf_below: Option<Rate>,
}

impl Default for Forwarding {
    /// From disks, without relays; rings of 1 MB.
    fn default() -> Self {
        Self { by_rings: false, ring_bytes: RING_BYTES as u64, via: Vec::new(), leaf_below: None }
    }
}

/// The source's own ring, and the terms of others'.
pub struct Rings {
    /// What the source streams.
    pub node: Arc<NodeRing>,
    /// By node.
    pub terms: BTreeMap<Name, RingTerms>,
    /// Who keeps nothing.
    pub relays: BTreeSet<Name>,
}

impl Forwarding {
    /// Whether anybody hands on by a ring: from one that does a node takes all, so that it has one parent.
    pub const fn streams(&self) -> bool {
        self.by_rings || !self.via.is_empty()
    }

    /// What the plan counts with behind rings: what Fig. 15's lost, as nothing better was measured of ours. Stores
    /// lose nothing.
    pub const fn loss(&self) -> ChainLoss {
        if self.streams() { ChainLoss::FIGURE_15 } else { ChainLoss::NONE }
    }

    /// Says of each parent whether it streams or is asked: relays stream, and if rings are wanted all
    /// do. From one that streams a node takes all, so it has no second parent beside it.
    pub fn decide(&self, parts: &mut BTreeMap<Name, Part>) {
        for (name, part) in parts {
            let is_relay = self.via.contains(name);
            for candidate in &mut part.candidates {
                let from_relay = candidate.name.as_ref().is_some_and(|c| self.via.contains(c));
                let streams = self.by_rings || is_relay || from_relay;
                candidate.want = if streams { Want::Stream } else { Want::Pull };
            }
            if part.candidates.first().is_some_and(|first| first.want == Want::Stream) {
                part.at_once = 1;
                continue;
            }
            part.candidates.sort_by_key(|candidate| candidate.want == Want::Stream);
            let asked = part.candidates.iter().filter(|c| c.want == Want::Pull).count();
            part.at_once = part.at_once.min(u32::try_from(asked).unwrap_or(u32::MAX)).max(1);
        }
    }

    /// The source's ring, and what the others are told of theirs.
    ///
    /// # Errors
    /// I/O errors.
    pub fn rings(
        &self,
        store: &Arc<Store>,
        parts: &BTreeMap<Name, Part>,
        key: &Arc<PrivateKey>,
    ) -> io::Result<Rings> {
        let first = |part: &Part| part.candidates.first().and_then(|first| first.name.clone());
        let givers: BTreeSet<Name> = parts.values().filter_map(first).collect();
        let giving = givers.iter().filter(|giver| !self.via.contains(giver));
        // Fits: at most 7.
        let others = giving.count().min(PARTS as usize - 1) as u32;
        let terms = |part| RingTerms { bytes: self.ring_bytes, part, parts: others + 1 };
        let of = |(at, name): (u32, &Name)| (name.clone(), terms(1 + at % others.max(1)));
        // Whoever gives first: neighbours in the order have different parts.
        let rest = parts.keys().filter(|name| !givers.contains(*name));
        let order = givers.iter().chain(rest);
        let book = Arc::new(PageBook::new(&store.known.geometry));
        let repairs = Repairs::of_source(Arc::clone(key), key.id(), Arc::clone(&book));
        let own = RingTerms { part: 0, ..terms(0) };
        Ok(Rings {
            node: NodeRing::new(Arc::clone(store), repairs, book, own, Start::Source)?,
            terms: (0..).zip(order).map(of).collect(),
            relays: self.via.iter().cloned().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::cast::Candidate;

    fn part(names: &[&str]) -> Part {
        let candidate = |name: &&str| {
            let name = (*name != "source").then(|| name.parse().unwrap());
            Candidate { name, bps: None, want: Want::Pull }
        };
        let candidates = names.iter().map(candidate).collect();
        Part { candidates, at_once: 2, ..Part::default() }
    }

    fn wants(part: &Part) -> Vec<(String, Want)> {
        let name = |c: &Candidate| c.name.as_ref().map_or("source".to_owned(), Name::to_string);
        part.candidates.iter().map(|c| (name(c), c.want)).collect()
    }

    #[test]
    fn nobody_has_another_parent_beside_one_that_streams() {
        let via = vec!["r".parse().unwrap()];
        let forwarding = Forwarding { via, ..Forwarding::default() };
        let mut parts: BTreeMap<Name, Part> = [
            ("a".parse().unwrap(), part(&["r", "source", "b"])),
            ("b".parse().unwrap(), part(&["source", "r", "a"])),
            ("r".parse().unwrap(), part(&["source", "a"])),
        ]
        .into();
        forwarding.decide(&mut parts);
        let part = |name: &str| &parts[&name.parse::<Name>().unwrap()];
        let (pull, stream) = (Want::Pull, Want::Stream);
        let of = |all: &[(&str, Want)]| {
            all.iter().map(|(name, want)| (name.to_string(), *want)).collect::<Vec<_>>()
        };
        assert_eq!(wants(part("a")), of(&[("r", stream), ("source", pull), ("b", pull)]));
        assert_eq!(wants(part("b")), of(&[("source", pull), ("a", pull), ("r", stream)]));
        assert_eq!(wants(part("r")), of(&[("source", stream), ("a", stream)]));
        assert_eq!(["a", "b", "r"].map(|name| part(name).at_once), [1, 2, 1]);
    }
}
