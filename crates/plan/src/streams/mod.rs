//! The global scheduler of streams: which way, and how much of it, each subscriber gets (MGRP §3.1, MediaNet).
//!
//! ```text
//! reports of legs, trains ─► LegView ─► Rules ─► Leg: limit, whether it may lift a level
//! nodes, streams, subscribers, what is in force ─► Problem ─► plan ─► Configuration, Flows
//!                                                     └► exact: of small ones, to compare with
//! ```
//!
//! Each stream has a tree: its publisher's node at the top, each other node with one parent. A leg carries each part of
//! a stream once, however many beneath it want it, and nothing that nobody beneath wants: so adaptations are made as early
//! on the way as can be. A transcoder runs at the first node on the way that has it.
//!
//! What keeps the configuration from swinging is in the problem itself: a leg that nothing recent is known of lifts
//! nobody, who was just lowered is held, and any change from what is in force has to gain more than a margin.

mod anneal;
mod exact;
mod fill;
mod flows;
mod leg_view;
mod problem;
mod state;
#[cfg(test)]
mod tests;

pub use anneal::Planned;
pub use flows::{Fault, Flow, Flows, Transcoding};
pub use leg_view::{Known, LegView, Rules, Sent, Source, Trains};
pub use problem::{
    Configuration, Leg, MAX_NODES, MAX_PARTS, MAX_PLACES, MAX_PREFERENCES, MAX_TRANSCODERS, Made,
    Node, Part, Parts, Preference, Problem, ProblemError, Stream, Subscriber, Terms,
};
