//! Measurements (pure): probe trains, the tools that use them, and the table of estimates.
//!
//! Inputs are arrivals of probes, bytes of flows, packets of applications, and the time. Outputs are the next train,
//! findings and estimates.
//!
//! ```text
//! estimators: a tool ─► Train ─► (sent by others) ─► Flight: what arrived when ─► the tool ─► Finding
//! packets ─► riders: held, cut to the padding of probes ═══► reassembled ─► packets
//! bytes of a bulk flow ─► bulk: is it steady? ─► a rate
//! overlay: which link is measured next, and how
//!
//! Finding, rate ─► Estimate ─► Table ─► plans
//! ```
//!
//! An [`Estimate`] names its [`Subject`], method, reporter and age, and whether it is the value or only a lower
//! [`Bound`]. The [`Table`] keeps the newest ones; `plan::Graph::from_table` is the only way from it to a plan.
//!
//! Nodes and interfaces are dense indices; the owner of a table maps them to identities.

mod available_rate;
mod bound;
pub mod bulk;
mod estimate;
pub mod estimators;
pub mod overlay;
pub mod riders;
#[cfg(test)]
mod simulated_path;
mod subject;
mod table;
pub mod train;

pub use available_rate::{AvailableRate, MAX_SPARE_AGE, planned_rate};
pub use bound::{Bound, LimitedTime};
pub use estimate::{Estimate, EstimateError, Method, Metric};
pub use subject::{Interface, NodeIndex, SharedSetIndex, Subject};
pub use table::{Table, TableError};
