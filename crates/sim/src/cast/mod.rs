//! One object to many receivers down a tree: source's cost, control traffic and finishes, to 10,000 receivers.
//!
//! The plan and the delivery are the product's own (`thalweg_plan::tree`); made up are the hosts
//! ([`Population`]) and counted are messages by what the protocol says ([`Control`]). Flows only: no packets, no
//! round trips, no cost of hashing or coding. What shares a bottleneck other than a host's access is not modelled.

mod control;
mod population;
mod run;
#[cfg(test)]
mod tests;

pub use control::{Control, Messages, Traffic};
pub use population::Population;
pub use run::{Arm, Report, Settings, Source, Spread, run};
