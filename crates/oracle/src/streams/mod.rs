//! The global scheduler of streams (MGRP §3.1): members report their streams, and get a plan each.
//!
//! ```text
//! reports ─► State: members, holders of names, a LegView for each leg ─► Outline ─► Problem ─► plan
//! estimates of trains (the measuring service's table) ──┘                                       │
//! members ◄── Plan: parent, children with qualities, levels, reasons ◄── Decided ◄──────────────┘
//! ```
//!
//! All state is in memory. A member that is silent for [`SILENCE`](thalweg_wire::stream::plan::SILENCE) is forgotten,
//! and an oracle that is no longer elected forgets everything. A newly elected oracle begins with the configuration
//! that members report.
//!
//! A member can report only its own legs, streams and subscriptions. The utilities in its report are scaled, so that
//! they weigh only its own subscriptions against each other.

mod candidates;
mod decisions;
mod layout;
mod members;
mod outline;
mod service;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use service::Streams;
pub(crate) use state::LegEstimates;
