//! Measures the mesh: gives orders (which member measures which leg, and when), checks the reports, and answers
//! clients.
//!
//! ```text
//! roster ─→ nodes ─→ planner ─→ orders ──→ senders (long poll)
//!                      ↑          │
//!                    known ←── reports ←── both ends
//!                      │  └──→ history ──→ database (beside, never waited for)
//!                      ↓
//!             ranked ─→ offer ─→ candidates, paths
//! ```
//!
//! Both ends report a leg's rate. The lower report is believed, and reports that differ by more than a quarter are
//! shown as a disagreement. A report by one end alone is only a lower bound, see [`verdict`]. Reports on legs of which
//! the reporter is not an end are refused. The client-oblivious ranking is
//! [`Ranking::robust`](thalweg_plan::ranking::Ranking::robust), which bounds the influence of liars.
//!
//! Source: UKAIRO §3.1. Of several oracles on one database, the elected one schedules; all of them answer reads from
//! what it records.

mod assigning;
mod event;
mod history;
mod known;
#[cfg(test)]
mod liars;
mod live;
mod loads;
mod measuring;
mod nodes;
mod offer;
mod orders;
mod paths;
mod planner;
mod presence;
mod ranked;
mod repeats;
mod reports;
mod scheduler;
mod settings;
mod state;
mod tally;
mod verdict;

pub use event::MeasureEvent;
pub(crate) use measuring::Measuring;
pub use scheduler::Leg as SeedLeg;
pub(crate) use scheduler::Scheduler;
pub use settings::{MeasureConfig, Order, Pace};
pub use tally::MeasureCounts;
