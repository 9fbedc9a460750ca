//! What is to be planned: nodes, legs, streams and who wants them.

use super::flows::{Flow, Flows};
use std::{collections::BTreeMap, time::Duration};
use thiserror::Error;

/// The most nodes of a problem: a table of all pairs is kept.
pub const MAX_NODES: usize = 1024;

/// The most places that trees can have: streams times nodes. About 100 bytes each.
pub const MAX_PLACES: usize = 1 << 20;

/// The most parts of a stream: sets of them are bits of a word.
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
    /// Whether it hands on streams of others.
    pub relays: bool,
    /// Transcoders that it can run, one bit each.
    pub transcoders: u64,
    /// The most that it sends of all streams, bit/s; `None`: no limit of its own.
    pub egress: Option<u64>,
}

/// From one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// What plans may send over it, bit/s: its capacity times a headroom. `None`: it has never been the limit.
    pub limit: Option<u64>,
    /// Whether nothing at all is known of it.
    pub is_unknown: bool,
    /// Whether what is known of it is recent enough to lift a level.
    pub may_lift: bool,
    /// One way.
    pub delay: Duration,
}

/// Something of a stream that is sent, or not, as a whole: the frames of one class of a rendition, or what a transcoder
/// makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// bit/s.
    pub bps: u64,
    /// What makes it; `None`: the publisher sends it.
    pub made: Option<Made>,
}

/// Made by a transcoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Which, below [`MAX_TRANSCODERS`].
    pub transcoder: u8,
    /// What it reads: parts that the publisher sends.
    pub from: Parts,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The publisher's node.
    pub publisher: u32,
    /// Its parts.
    pub parts: Vec<Part>,
    /// Nodes that may hand it on, ascending, if they relay at all; `None`: all.
    pub relays: Option<Vec<u32>>,
}

/// One quality that a subscriber would take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preference {
    /// What of the stream.
    pub parts: Parts,
    /// What it is worth; finite, above 0.
    pub utility: f64,
}

/// Who wants a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscriber {
    /// Which stream.
    pub stream: u32,
    /// Where.
    pub node: u32,
    /// The best first (MGRP §3.1).
    pub preferences: Vec<Preference>,
    /// How much it counts beside others; finite, above 0.
    pub weight: f64,
    /// The longest way from the publisher's node.
    pub latency: Duration,
    /// Whether it was lowered so recently that it gets nothing better yet.
    pub is_held: bool,
}

/// What is worth how much beside the utilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Each leg after the first costs such a share of the utility.
    pub hop: f64,
    /// So does each second of delay.
    pub delay: f64,
    /// Over a leg of which nothing is known a stream is worth this share.
    pub doubt: f64,
    /// Another level than at present must gain more than such a share of the subscriber's best utility.
    pub level_margin: f64,
    /// So must another way.
    pub route_margin: f64,
    /// The most legs between a publisher's node and a subscriber's.
    pub max_legs: u8,
}

impl Default for Terms {
    /// A leg more is taken for any level more, and a change of level or way only for more than 3 and 5 % of a picture. Four
    /// legs reach everybody in overlays of full meshes, and each adds its queue.
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
    /// Utilities alone.
    pub const fn none() -> Self {
        let (hop, delay, doubt) = (0.0, 0.0, 1.0);
        Self { hop, delay, doubt, level_margin: 0.0, route_margin: 0.0, max_legs: 4 }
    }
}

/// Who gets what from where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// By subscriber: the position of its preference; `None`: nothing.
    pub choices: Vec<Option<u8>>,
    /// By stream: each node's parent. The publisher's node has none.
    pub parents: Vec<BTreeMap<u32, u32>>,
}

/// A problem that cannot be stated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProblemError {
    /// More than a bound.
    #[error("there are {count} {what}, more than {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// The bound.
        most: usize,
    },
    /// An index of nothing.
    #[error("{what} {at} names a node, stream or part that does not exist")]
    Index {
        /// In what.
        what: &'static str,
        /// Which.
        at: usize,
    },
    /// A number that is not finite, or not above 0.
    #[error(
        "subscriber {0} has no preference, or a weight or utility that is not finite and above 0"
    )]
    Worth(usize),
    /// Two legs between the same nodes.
    #[error("the leg from node {0} to node {1} is there twice")]
    Twice(u32, u32),
}

/// No leg, no node.
pub(super) const NONE: u32 = u32::MAX;

/// A problem, with the configuration that is in force now.
#[derive(Clone, Debug)]
pub struct Problem {
    pub(super) nodes: Vec<Node>,
    pub(super) legs: Vec<Leg>,
    pub(super) streams: Vec<Stream>,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) terms: Terms,
    pub(super) present: Configuration,
    /// What flows at present, by place; empty: nothing.
    was: Vec<Option<Flow>>,
    /// From, to: a leg's index, or [`NONE`].
    leg_of: Vec<u32>,
    /// By node: the legs to it.
    pub(super) into: Vec<Vec<u32>>,
    /// By stream: its subscribers by node.
    pub(super) by_place: Vec<Vec<(u32, u32)>>,
}

impl Problem {
    /// Checks and indexes it. Nothing is in force.
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

    /// With the configuration that is in force; what of it does not exist any more is passed over.
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

    /// What is in force.
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

    /// What a node gets of a stream at present.
    pub(super) fn was(&self, stream: u32, node: u32) -> Option<Flow> {
        let place = stream as usize * self.nodes.len() + node as usize;
        self.was.get(place).copied().flatten()
    }

    /// The leg between two nodes, by its position.
    pub fn leg_of(&self, from: u32, to: u32) -> Option<u32> {
        let leg = self.leg_of[from as usize * self.nodes.len() + to as usize];
        (leg != NONE).then_some(leg)
    }

    /// Whether the node may hand the stream on.
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

    /// bit/s of these parts.
    pub(super) fn rate(&self, stream: u32, parts: Parts) -> u64 {
        let of = &self.streams[stream as usize].parts;
        bits(parts).map(|part| of[part].bps).sum()
    }

    /// A preference of a subscriber.
    pub(super) fn preference(&self, who: u32, choice: u8) -> Preference {
        self.subscribers[who as usize].preferences[usize::from(choice)]
    }
}

/// The positions of the bits that are set.
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
