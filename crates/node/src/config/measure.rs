//! `[measure]`: what this node measures for the mesh.

use super::{Share, text};
use serde::Deserialize;
use thalweg_probe::overlay::OverlayRunSettings;
use thalweg_units::{ByteSize, Rate};

/// The settings of [`thalweg_probe::prober`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MeasureSection {
    /// Whether this node measures, is measured, and reports at all.
    pub enabled: bool,
    /// The bytes per UTC day for flows that only measure, both directions together.
    #[serde(deserialize_with = "text::one")]
    pub max_bytes_per_day: ByteSize,
    /// The highest rate of such a flow; absent: as fast as possible.
    #[serde(deserialize_with = "text::option")]
    pub max_rate: Option<Rate>,
    /// Whether to report transfers as well that this node relays for members, or serves to them if it has an overlay.
    pub passive: bool,
    /// Whether this node measures its links with trains of its own accord.
    pub overlay: bool,
    /// The share of the day's bytes for these trains.
    #[serde(deserialize_with = "text::one")]
    pub overlay_share: Share,
    /// The rate that this node can relay, reported to the oracle; absent: the highest rate seen.
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
            // The overlay sends unasked, as fast as links are, so it has to be turned on explicitly.
            overlay: false,
            overlay_share: Share::of_millionths(250_000),
            relay_capacity: None,
        }
    }
}

impl MeasureSection {
    /// The settings of the overlay, if it is on.
    pub fn overlay_run(&self) -> Option<OverlayRunSettings> {
        let share = self.overlay_share.fraction();
        self.overlay.then(|| OverlayRunSettings { share, ..OverlayRunSettings::default() })
    }
}
