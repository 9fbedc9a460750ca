//! The global scheduler of streams (MGRP §3.1): members report, and get what each of them is to do.
//!
//! ```text
//! reports ─► State: who is there, who holds which name, a LegView a leg ─► Outline ─► Problem ─► plan
//! trains' estimates (the measuring service's table) ──┘                                      │
//! members ◄── Plan: parent, children with qualities, levels, why ◄── Decided ◄───────────────┘
//! ```
//!
//! All of it is in memory alone, and of members who report: who is silent for
//! [`SILENCE`](thalweg_wire::stream::plan::SILENCE) is forgotten, and an oracle that is not elected any more forgets all.
//! A new one begins from what members say that they do.
//!
//! Each member tells of its own legs, streams and subscriptions alone. What it says its wishes are worth counts among
//! them, not beside others'.

mod candidates;
mod decided;
mod layout;
mod members;
mod outline;
mod service;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use service::Streams;
pub(crate) use state::Estimated;
