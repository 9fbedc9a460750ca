//! `[measure]`: what this node measures for the mesh.

use super::{Share, text};
use serde::Deserialize;
use thalweg_probe::overlay::OverlayRun;
use thalweg_units::{ByteSize, Rate};

/// The settings of [`thalweg_probe::prober`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MeasureSection {
    /// Whether this node measures, is measured, and reports at all.
    pub enabled: bool,
    /// For flows that are only measured, both directions together, in a UTC day.
    #[serde(deserialize_with = "text::one")]
    pub max_bytes_per_day: ByteSize,
    /// The fastest such a flow may be; absent: as fast as it goes.
    #[serde(deserialize_with = "text::option")]
    pub max_rate: Option<Rate>,
    /// Whether transfers that this node relays for members, and with an overlay serves to them, are reported as well.
    pub passive: bool,
    /// Whether this node measures its links by trains, unasked.
    pub overlay: bool,
    /// The share of the day's bytes that this may take.
    #[serde(deserialize_with = "text::one")]
    pub overlay_share: Share,
    /// What this node can relay, told to the oracle; absent: the most that was seen.
    #[serde(deserialize_with = "text::option")]
    pub relay_capacity: Option<Rate>,
}

impl Default for MeasureSection {
    fn default() -> Self {
        Self {
            enabled: true,
            // A hundred tests of 20 MB: 1.3 s at 120 Mbit/s.
            max_bytes_per_day: ByteSize::from_bytes(2_000_000_000),
            max_rate: None,
            passive: true,
            // It sends unasked, as fast as links are: who wants that says so.
            overlay: false,
            overlay_share: Share::of_millionths(250_000),
            relay_capacity: None,
        }
    }
}

impl MeasureSection {
    /// How the overlay is run, if it is.
    pub fn overlay_run(&self) -> Option<OverlayRun> {
        let share = self.overlay_share.fraction();
        self.overlay.then(|| OverlayRun { share, ..OverlayRun::default() })
    }
}
