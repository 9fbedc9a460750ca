//! The problem: nodes, legs, streams and their subscribers.

use super::flows::{Flow, Flows};
use std::{collections::BTreeMap, time::Duration};
use thiserror::Error;

/// The most nodes of a problem, because it has a table of all pairs.
pub const MAX_NODES: usize = 1024;

/// The most places in all trees: streams times nodes, at about 100 bytes each.
pub const MAX_PLACES: usize = 1 << 20;

/// The most parts of a stream, because sets of parts are the bits of a word.
pub const MAX_PARTS: usize = 64;

/// The most kinds of transcoders.
pub const MAX_TRANSCODERS: usize = 64;

/// The most preferences of a subscriber.
pub const MAX_PREFERENCES: usize = 64;

/// Parts of a stream, one bit each.
pub type Parts = u64;

/// A node of the overlay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Whether it relays streams published elsewhere.
    pub relays: bool,
    /// The transcoders that it can run, one bit each.
    pub transcoders: u64,
    /// The highest rate at which it sends all streams together, bit/s; `None`: no limit.
    pub egress: Option<u64>,
}

/// The connection from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    pub from: u32,
    pub to: u32,
    /// The highest rate that a plan may send over it, bit/s: its capacity times the headroom. `None`: no limit is
    /// known.
    pub limit: Option<u64>,
    /// Whether nothing is known of it.
    pub is_unknown: bool,
    /// Whether its estimate is recent enough to raise a level.
    pub may_lift: bool,
    /// The one-way delay.
    pub delay: Duration,
}

/// A part of a stream, sent completely or not at all: the frames of one class of a rendition, or a transcoder's
/// output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub bps: u64,
    /// The transcoder that makes it; `None`: the publisher sends it.
    pub made: Option<Made>,
}

/// The transcoder of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its number, below [`MAX_TRANSCODERS`].
    pub transcoder: u8,
    /// Its input: parts that the publisher sends.
    pub from: Parts,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The publisher's node.
    pub publisher: u32,
    pub parts: Vec<Part>,
    /// The nodes that may relay it if they relay at all, in ascending order; `None`: all.
    pub relays: Option<Vec<u32>>,
}

/// A quality that a subscriber accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preference {
    /// The parts of the stream.
    pub parts: Parts,
    /// Its utility; finite, above 0.
    pub utility: f64,
}

/// A subscriber of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscriber {
    pub stream: u32,
    pub node: u32,
    /// In order of preference, the best first (MGRP §3.1).
    pub preferences: Vec<Preference>,
    /// Its weight; finite, above 0.
    pub weight: f64,
    /// The longest delay from the publisher's node.
    pub latency: Duration,
    /// Whether it was lowered so recently that it is not raised yet.
    pub is_held: bool,
}

/// The costs and margins that are subtracted from utilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The share of the utility that each leg after the first costs.
    pub hop: f64,
    /// The share that each second of delay costs.
    pub delay: f64,
    /// The share of the utility that remains over a leg without any estimate.
    pub doubt: f64,
    /// A change of level must gain more than this share of the subscriber's best utility.
    pub level_margin: f64,
    /// A change of route must gain more than this share.
    pub route_margin: f64,
    /// The most legs between a publisher's node and a subscriber's.
    pub max_legs: u8,
}

impl Default for Terms {
    /// A further leg costs less than any level gains. Changes of level and route must gain more than 3 and 5 %. In a
    /// full mesh four legs reach every node, and each leg adds the delay of its queue.
    fn default() -> Self {
        Self {
            hop: 0.01,
            delay: 0.1,
            doubt: 0.5,
            level_margin: 0.03,
            route_margin: 0.05,
            max_legs: 4,
        }
    }
}

impl Terms {
    /// No costs and no margins.
    pub const fn none() -> Self {
        let (hop, delay, doubt) = (0.0, 0.0, 1.0);
        Self { hop, delay, doubt, level_margin: 0.0, route_margin: 0.0, max_legs: 4 }
    }
}

/// The choice of each subscriber, and the tree of each stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// For each subscriber, the position of the chosen preference; `None`: it gets nothing.
    pub choices: Vec<Option<u8>>,
    /// For each stream, the parent of each node. The publisher's node has none.
    pub parents: Vec<BTreeMap<u32, u32>>,
}

/// Why a problem is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProblemError {
    /// A count exceeds its bound.
    #[error("there are {count} {what}, more than {most}")]
    TooMany {
        /// What is counted, in the plural.
        what: &'static str,
        count: usize,
        most: usize,
    },
    /// An index is out of range.
    #[error("{what} {at} names a node, stream or part that does not exist")]
    Index {
        /// The kind of the item.
        what: &'static str,
        at: usize,
    },
    /// A weight or utility is not finite or not above 0.
    #[error(
        "subscriber {0} has no preference, or a weight or utility that is not finite and above 0"
    )]
    Worth(usize),
    /// There are two legs between the same nodes.
    #[error("there are two legs from node {0} to node {1}")]
    Twice(u32, u32),
}

/// The index that stands for no leg or no node.
pub(super) const NONE: u32 = u32::MAX;

/// A problem, with the present configuration.
#[derive(Clone, Debug)]
pub struct Problem {
    pub(super) nodes: Vec<Node>,
    pub(super) legs: Vec<Leg>,
    pub(super) streams: Vec<Stream>,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) terms: Terms,
    pub(super) present: Configuration,
    /// The present flows by place; empty: none.
    was: Vec<Option<Flow>>,
    /// The leg's index by sender and receiver, or [`NONE`].
    leg_of: Vec<u32>,
    /// The legs to each node.
    pub(super) into: Vec<Vec<u32>>,
    /// The subscribers of each stream with their nodes, by node.
    pub(super) by_place: Vec<Vec<(u32, u32)>>,
}

impl Problem {
    /// Checks and indexes a problem without a present configuration.
    ///
    /// # Errors
    /// [`ProblemError`].
    pub fn new(
        nodes: Vec<Node>,
        legs: Vec<Leg>,
        streams: Vec<Stream>,
        subscribers: Vec<Subscriber>,
        terms: Terms,
    ) -> Result<Self, ProblemError> {
        check_sizes(&nodes, &streams)?;
        check_streams(&nodes, &streams)?;
        check_subscribers(&nodes, &streams, &subscribers)?;
        let mut leg_of = vec![NONE; nodes.len() * nodes.len()];
        let mut into = vec![Vec::new(); nodes.len()];
        for (at, leg) in legs.iter().enumerate() {
            let ends = (leg.from as usize, leg.to as usize);
            if ends.0.max(ends.1) >= nodes.len() || ends.0 == ends.1 {
                return Err(ProblemError::Index { what: "leg", at });
            }
            let place = &mut leg_of[ends.0 * nodes.len() + ends.1];
            if *place != NONE {
                return Err(ProblemError::Twice(leg.from, leg.to));
            }
            *place = at as u32;
            into[ends.1].push(at as u32);
        }
        let mut by_place = vec![Vec::new(); streams.len()];
        for (at, subscriber) in (0..).zip(&subscribers) {
            by_place[subscriber.stream as usize].push((subscriber.node, at));
        }
        by_place.iter_mut().for_each(|of_stream| of_stream.sort_unstable());
        let present = Configuration {
            choices: vec![None; subscribers.len()],
            parents: vec![BTreeMap::new(); streams.len()],
        };
        let was = Vec::new();
        Ok(Self { nodes, legs, streams, subscribers, terms, present, was, leg_of, into, by_place })
    }

    /// Sets the present configuration. Parts of it that no longer exist are ignored.
    #[must_use]
    pub fn with_present(mut self, mut present: Configuration) -> Self {
        present.choices.resize(self.subscribers.len(), None);
        present.parents.resize(self.streams.len(), BTreeMap::new());
        for (choice, subscriber) in present.choices.iter_mut().zip(&self.subscribers) {
            let exists = |choice: &u8| usize::from(*choice) < subscriber.preferences.len();
            *choice = choice.filter(exists);
        }
        let mut was = vec![None; self.streams.len() * self.nodes.len()];
        for ((stream, node), flow) in Flows::of(&self, &present).by_place {
            was[stream as usize * self.nodes.len() + node as usize] = Some(flow);
        }
        self.was = was;
        self.present = present;
        self
    }

    /// The present configuration.
    pub const fn present(&self) -> &Configuration {
        &self.present
    }

    /// All legs, in their order.
    pub fn legs(&self) -> &[Leg] {
        &self.legs
    }

    /// All subscribers, in their order.
    pub fn subscribers(&self) -> &[Subscriber] {
        &self.subscribers
    }

    /// All streams, in their order.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The present flow of a stream to a node.
    pub(super) fn was(&self, stream: u32, node: u32) -> Option<Flow> {
        let place = stream as usize * self.nodes.len() + node as usize;
        self.was.get(place).copied().flatten()
    }

    /// The position of the leg between two nodes.
    pub fn leg_of(&self, from: u32, to: u32) -> Option<u32> {
        let leg = self.leg_of[from as usize * self.nodes.len() + to as usize];
        (leg != NONE).then_some(leg)
    }

    /// Whether the node may send the stream to others.
    pub(super) fn may_send(&self, stream: u32, node: u32) -> bool {
        let of = &self.streams[stream as usize];
        let is_let = || of.relays.as_ref().is_none_or(|nodes| nodes.binary_search(&node).is_ok());
        of.publisher == node || (self.nodes[node as usize].relays && is_let())
    }

    /// The stream's subscribers at the node.
    pub(super) fn locals(&self, stream: u32, node: u32) -> impl Iterator<Item = u32> + '_ {
        let all = &self.by_place[stream as usize];
        let from = all.partition_point(|(at, _)| *at < node);
        all[from..].iter().take_while(move |(at, _)| *at == node).map(|(_, who)| *who)
    }

    /// Whether a choice is better than the present one. A subscriber that gets nothing begins and is not raised.
    pub(super) fn is_lift(&self, who: u32, choice: u8) -> bool {
        let utility = |choice| self.preference(who, choice).utility;
        self.present.choices[who as usize].is_some_and(|was| utility(choice) > utility(was))
    }

    /// The rate of these parts, bit/s.
    pub(super) fn rate(&self, stream: u32, parts: Parts) -> u64 {
        let of = &self.streams[stream as usize].parts;
        bits(parts).map(|part| of[part].bps).sum()
    }

    /// A preference of a subscriber.
    pub(super) fn preference(&self, who: u32, choice: u8) -> Preference {
        self.subscribers[who as usize].preferences[usize::from(choice)]
    }
}

/// The positions of the set bits.
pub(super) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (at < u64::BITS).then_some(at as usize)
    })
}

fn check_sizes(nodes: &[Node], streams: &[Stream]) -> Result<(), ProblemError> {
    let places = nodes.len().saturating_mul(streams.len());
    let counts = [("nodes", nodes.len(), MAX_NODES), ("streams times nodes", places, MAX_PLACES)];
    match counts.into_iter().find(|(_, count, most)| count > most) {
        Some((what, count, most)) => Err(ProblemError::TooMany { what, count, most }),
        None => Ok(()),
    }
}

fn check_streams(nodes: &[Node], streams: &[Stream]) -> Result<(), ProblemError> {
    for (at, stream) in streams.iter().enumerate() {
        let count = stream.parts.len();
        if count > MAX_PARTS {
            return Err(ProblemError::TooMany {
                what: "parts of a stream",
                count,
                most: MAX_PARTS,
            });
        }
        let sent = stream.parts.iter().enumerate().filter(|(_, part)| part.made.is_none());
        let sent: Parts = sent.fold(0, |all, (part, _)| all | 1 << part);
        let is_sound =
            |made: &Made| usize::from(made.transcoder) < MAX_TRANSCODERS && made.from & !sent == 0;
        let are_sound = stream.parts.iter().filter_map(|part| part.made.as_ref()).all(is_sound);
        let relays = stream.relays.as_ref();
        let known = relays.is_none_or(|all| all.iter().all(|node| (*node as usize) < nodes.len()));
        if stream.publisher as usize >= nodes.len() || !are_sound || !known {
            return Err(ProblemError::Index { what: "stream", at });
        }
    }
    Ok(())
}

fn check_subscribers(
    nodes: &[Node],
    streams: &[Stream],
    subscribers: &[Subscriber],
) -> Result<(), ProblemError> {
    for (at, subscriber) in subscribers.iter().enumerate() {
        let stream = streams.get(subscriber.stream as usize);
        let all = stream.map(|stream| stream.parts.len()).unwrap_or_default();
        let exist = |parts: Parts| bits(parts).all(|part| part < all);
        if stream.is_none()
            || subscriber.node as usize >= nodes.len()
            || !subscriber.preferences.iter().all(|one| exist(one.parts))
        {
            return Err(ProblemError::Index { what: "subscriber", at });
        }
        let count = subscriber.preferences.len();
        if count > MAX_PREFERENCES {
            let (what, most) = ("preferences of a subscriber", MAX_PREFERENCES);
            return Err(ProblemError::TooMany { what, count, most });
        }
        let is_worth = |worth: f64| worth.is_finite() && worth > 0.0;
        let utilities = subscriber.preferences.iter().map(|one| one.utility);
        if count == 0 || !utilities.chain([subscriber.weight]).all(is_worth) {
            return Err(ProblemError::Worth(at));
        }
    }
    Ok(())
}
