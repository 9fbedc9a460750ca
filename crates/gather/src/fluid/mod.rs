//! Carries out the adaptive fluid plan: each path is one cut-through connection that runs at its full rate.
//!
//! ```text
//! steering (plan) ─ ways ─► conductor ─ a worker per way ─► source [► relays] ─► here ─► Land
//!    ▲                          │            │ requests
//!    └── bytes per way, remaining bytes      ▼
//!                                          scheduler: Work, and the outstanding requests
//! ```
//!
//! A path is a channel to the source through relays. An intermediate forwards bytes as they arrive, never holds more
//! than its relay's buffers, and cannot read them. No path idles while its source has data: a worker that finishes
//! takes the next request, and at the end a copy of a request that a slower path would deliver much later. Until the
//! end, rates determine the shares; the remaining data is then shared by the steering's weights.

mod conductor;
mod meter;
mod piece_scheduler;
#[cfg(test)]
mod piece_scheduler_tests;
mod settings;
mod sizes;
mod worker;

pub use settings::Settings;

use super::CollectContext;
use conductor::PathConductor;
use thalweg_files::land::LandError;
use thalweg_plan::collection::steering::SharedSet;

/// The result of a collection by the fluid plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FluidOutcome {
    /// Sources that were given up, and why; the data of the others is here.
    pub failed: Vec<(u32, String)>,
    /// The number of paths opened.
    pub ways: u32,
    /// How often measured rates differed from the planned ones for long enough.
    pub drifts: u32,
    /// Legs that were observed to slow each other, as participants' indices.
    pub shared_sets: Vec<SharedSet>,
    /// Bytes received twice: copies of data that a slower path brought as well. The landing received them too.
    pub duplicate_bytes: u64,
}

/// Carries out the collection. Files that cannot be fetched are given up at the landing, with the reason.
///
/// Ends early, without an error, if the collection is stopped.
///
/// # Errors
///
/// [`LandError::All`]: nothing more can be stored.
pub async fn run(context: &CollectContext, settings: Settings) -> Result<FluidOutcome, LandError> {
    PathConductor::new(context.clone(), settings).run().await
}
