//! Carries out the adaptive fluid plan: each way is one cut-through connection that runs at its full
//! rate.
//!
//! ```text
//! steering (plan) ─ ways ─► conductor ─ a worker per way ─► source [► relays] ─► here ─► Land
//!    ▲                          │            │ parcels
//!    └── bytes per way, what is left         ▼
//!                                          desk: Work, and who has asked for what
//! ```
//!
//! A way is a channel to the source through relays: an intermediate passes bytes on as they come,
//! never more than its relay's buffers hold, and the two ends alone can read them. No way idles
//! while its source has data: whoever is done takes the next parcel, and at the end a copy of one
//! that a slower way would bring much later. Until the end rates make the shares; what is left then is
//! shared by the steering's weights.

mod conductor;
mod desk;
#[cfg(test)]
mod desk_tests;
mod meter;
mod settings;
mod sizes;
mod worker;

pub use settings::Settings;

use super::Errand;
use conductor::Conductor;
use thalweg_files::land::LandError;
use thalweg_plan::collection::steering::SharedSet;

/// What a collection by the fluid plan came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Sources that were given up, and why; the data of the others is here.
    pub failed: Vec<(u32, String)>,
    /// Ways that were opened, in all.
    pub ways: u32,
    /// How often realised rates were away from the planned ones for long enough.
    pub drifts: u32,
    /// Legs that were seen to slow each other; as participants' indices.
    pub shared_sets: Vec<SharedSet>,
    /// Bytes that came a second time: copies of what a slower way brought as well. The landing got
    /// them too.
    pub duplicate_bytes: u64,
}

/// The collection. Files that will not come are given up at the landing, with why.
///
/// Ends early, without an error, when the errand is to be stopped.
///
/// # Errors
///
/// [`LandError::All`]: nothing more can be kept.
pub async fn run(errand: &Errand, settings: Settings) -> Result<Outcome, LandError> {
    Conductor::new(errand.clone(), settings).run().await
}
