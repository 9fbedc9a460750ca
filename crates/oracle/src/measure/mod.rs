//! Measuring the mesh: orders (which member measures which leg, and when), checks of the reports, and
//! answers to clients.
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
//! A rate is what both ends say: the lower of the two, and where they differ by more than a
//! quarter that is shown. What one end says alone counts for less, see [`verdict`]. Nothing
//! enters of legs that a reporter is no end of. The client-oblivious ranking is
//! [`Ranking::robust`](thalweg_plan::ranking::Ranking::robust), which bounds what liars do.
//!
//! Source: UKAIRO §3.1. Of several oracles on one database the elected one schedules; all of
//! them answer reads, from what it records.

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
