//! The interfaces of this host, and the choice of one for a whole connection: DBAS's
//! connection-oriented mode (§II-D) for any server. `thalweg_bond` decides; this module supplies its
//! inputs.
//!
//! A [`Table`] is pure: it holds the usable interfaces, their estimated rates, what is under way by them, what each
//! application's connections move, and what the user allows. [`StoredTable`] is the part that outlives the process.
//! [`Uplinks`] are the table of a running process, a [`Passage`] is one connection in it. Estimates come from traffic
//! that moves anyway; where there is none, and the user names a server for it, from light probes, which are charged to
//! the budget.

mod accounts;
mod bill;
mod caps;
mod change;
mod control;
mod daily_usage;
mod doubt;
mod estimate;
mod faults;
mod in_flight;
mod metrics;
mod passage;
mod passage_throttle;
mod probe;
mod program;
mod report;
mod retransmissions;
mod settings;
mod stored_table;
mod table;
mod traffic;
mod uplinks;

pub use accounts::Accounts;
pub use caps::Permission;
pub use change::{Change, PolicyChange};
pub use control::{ask, serve};
pub use estimate::Estimate;
pub use metrics::InterfaceMetrics;
pub use passage::Passage;
pub use passage_throttle::{CapError, PassageThrottle};
pub use probe::{ProbeServer, ProbeServerError, Probed};
pub use program::{Client, PortHolder, listener_at, program_at, user_at};
pub use report::report;
pub use settings::Settings;
pub use stored_table::{Addition, AllotmentRequest, StoredTable};
pub use table::{Assignment, Decision, Direction, InterfaceStatus, Table, UsableInterface};
/// What is allowed of an interface, and how connections are assigned.
pub use thalweg_bond::{Cap, ConnectionMethod, Policy, Rule, Rules, Tier};
pub use uplinks::ProbeSettings;
pub use uplinks::{Lane, Lanes, Uplinks};

#[cfg(test)]
mod tests;
