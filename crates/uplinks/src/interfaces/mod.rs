//! The interfaces of this host, and the choice of one for a whole connection: DBAS's
//! connection-oriented mode (§II-D) for any server. `thalweg_bond` decides; this module supplies its
//! inputs.
//!
//! A [`Table`] is pure: it holds the usable interfaces, their estimated rates, what is under way by them, what each
//! application's connections move, and what the user allows. [`Kept`] is the part that outlives the process.
//! [`Uplinks`] are the table of a running process, a [`Passage`] is one connection in it. Estimates come from traffic
//! that moves anyway; where there is none, and the user names a server for it, from light probes, which are charged to
//! the budget.

mod accounts;
mod bill;
mod caps;
mod change;
mod control;
mod doubt;
mod estimate;
mod faults;
mod kept;
mod metrics;
mod passage;
mod probe;
mod program;
mod report;
mod resent;
mod settings;
mod table;
mod toll;
mod traffic;
mod under_way;
mod uplinks;
mod used;

pub use accounts::Accounts;
pub use caps::May;
pub use change::{Change, PolicyChange};
pub use control::{ask, serve};
pub use estimate::Estimate;
pub use kept::{Addition, Allotting, Kept};
pub use metrics::InterfaceMetrics;
pub use passage::Passage;
pub use probe::{NoProbeServer, ProbeServer, Probed};
pub use program::{Client, program_at, user_at};
pub use report::report;
pub use settings::Settings;
pub use table::{Assigned, Decision, Flow, Present, Shown, Table};
/// What is allowed of an interface, and how connections are assigned.
pub use thalweg_bond::{Cap, ConnectionMethod, Policy, Rule, Rules, Tier};
pub use toll::{NoMore, Toll};
pub use uplinks::Probing;
pub use uplinks::{Lane, Lanes, Uplinks};

#[cfg(test)]
mod tests;
