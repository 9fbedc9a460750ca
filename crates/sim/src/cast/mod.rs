//! One object to many receivers down a tree: the source's cost, control traffic and finishing times, for up to 10,000
//! receivers.
//!
//! The plan and the delivery are the product's own (`thalweg_plan::tree`). Hosts are synthetic ([`Population`]), and
//! messages are counted by the rules of the protocol ([`Control`]). Only flows are simulated: no packets, no round
//! trips, no cost of hashing or coding. Shared bottlenecks other than a host's access are not modelled.

mod control;
mod population;
mod run;
#[cfg(test)]
mod tests;

pub use control::{Control, Messages, Traffic};
pub use population::Population;
pub use run::{CastArm, CastReport, Settings, SourceCost, Spread, run};
