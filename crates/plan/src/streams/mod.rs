//! The global scheduler of streams: the route and the quality of each subscriber (MGRP §3.1, MediaNet).
//!
//! ```text
//! reports of legs, trains ─► LegView ─► Rules ─► Leg: its limit, and whether it may raise a level
//! nodes, streams, subscribers, present configuration ─► Problem ─► plan ─► Configuration, Flows
//!                                                          └► exact: the optimum of small problems, for comparison
//! ```
//!
//! Each stream has a tree with its publisher's node at the root. A leg carries each part of a stream once, and only
//! parts that a subscriber below requests, so adaptations are applied as early on the route as possible. A transcoder
//! runs at the first node on the route that has it.
//!
//! The problem itself contains the hysteresis: a leg without a recent measurement raises no level, a subscriber that
//! was lowered recently is not raised, and a change from the present configuration must gain more than a margin.

mod anneal;
mod exact;
mod fill;
mod flows;
mod hold_down;
mod leg_view;
mod problem;
mod state;
#[cfg(test)]
mod tests;

pub use anneal::Planned;
pub use flows::{Fault, Flow, Flows, Transcoding};
pub use hold_down::HoldDown;
pub use leg_view::{
    KnownRate, LIMITED_SECONDS, LegView, MEMORY, Rules, SECONDS, Sent, Source, Trains,
};
pub use problem::{
    Configuration, Leg, MAX_NODES, MAX_PARTS, MAX_PLACES, MAX_PREFERENCES, MAX_TRANSCODERS, Made,
    Node, Part, Parts, Preference, Problem, ProblemError, Stream, Subscriber, Terms,
};
