//! Measures the mesh: gives orders (which member measures which leg, and when), checks the reports, and answers
//! clients.
//!
//! ```text
//! roster ─→ nodes ─→ planner ─→ orders ──→ senders (long poll)
//!                      ↑          │
//!                    table ←── reports ←── both ends
//!                      │  └──→ history ──→ database (beside, never waited for)
//!                      ↓
//!             ranking → offer ─→ candidates, paths
//! ```
//!
//! Both ends report a leg's rate. The lower report is believed, and reports that differ by more than a quarter are
//! shown as a disagreement. A report by one end alone is only a lower bound, see [`verdict`]. Reports on legs of which
//! the reporter is not an end are refused. The client-oblivious ranking is
//! [`Ranking::robust`](thalweg_plan::ranking::Ranking::robust), which bounds the influence of liars.
//!
//! Source: UKAIRO §3.1. Of several oracles on one database, the elected one schedules; all of them answer reads from
//! what it records.

mod assignment;
mod estimate_table;
mod event;
mod history;
mod leg_graph;
#[cfg(test)]
mod liars;
mod loads;
mod nodes;
mod offer;
mod orders;
mod paths;
mod planner;
mod presence;
mod ranking;
mod repeat_detector;
mod reports;
mod scheduler;
mod service;
mod settings;
mod state;
mod tally;
mod verdict;

pub use event::MeasureEvent;
pub(crate) use scheduler::Scheduler;
pub use scheduler::SeedLeg;
pub(crate) use service::MeasuringService;
pub use settings::{MeasureConfig, Pace, ScheduleKind};
pub use tally::MeasureCounts;
