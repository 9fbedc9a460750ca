//! The outcome of a download.

use std::{path::PathBuf, time::Duration};
use thalweg_base::job::Event;
use thalweg_paths::{history::PathObservation, verdict::Facts};
use thalweg_units::{ByteSize, Rate};

/// The outcome of a completed download.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The file, under its final name.
    pub target: PathBuf,
    pub length: ByteSize,
    /// Bytes received over the network in this session.
    pub fetched: ByteSize,
    /// The part of `fetched` beyond what was missing at the start; see [`Event::Finished`].
    pub duplicate: ByteSize,
    /// The time from start to publication.
    pub took: Duration,
    /// The direct path's rate in sampling.
    pub direct_estimate: Option<Rate>,
    /// The rates of the two phases.
    pub phases: Phases,
    /// Observations of the paths, for [`thalweg_paths::history`].
    pub observed: Vec<PathObservation>,
    /// Paths that delivered other bytes than the object's, each with a description.
    pub corrupt: Vec<(String, String)>,
    /// What shows why it took as long as it did. The caller may know more: the interface's capacity, earlier rates.
    pub facts: Facts,
}

/// Sampling and completion (UKAIRO §3.2.1), in the last attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phases {
    /// The rate of all paths together until the first path was chosen.
    pub sampling: Option<Rate>,
    /// The rate of all paths together from then until the last byte arrived.
    pub completion: Option<Rate>,
    /// The path chosen last.
    pub completion_path: Option<String>,
}

impl Outcome {
    /// The fetched bytes divided by the whole time.
    pub fn rate(&self) -> Rate {
        Rate::over(self.fetched, self.took)
    }

    /// The download's rate as a multiple of the direct path's sampled rate.
    ///
    /// This overstates the gain: the direct path was sampled for about a second, in slow start, in competition with the
    /// other paths' flows.
    pub fn ratio_to_sampled_direct(&self) -> Option<f64> {
        let direct = self.direct_estimate.filter(|r| *r > Rate::ZERO)?;
        Some(self.rate().as_bps() as f64 / direct.as_bps() as f64)
    }

    pub(super) fn event(&self) -> Event {
        Event::Finished {
            target: self.target.display().to_string(),
            bytes: self.length.as_bytes(),
            fetched_bytes: self.fetched.as_bytes(),
            duplicate_bytes: self.duplicate.as_bytes(),
            seconds: self.took.as_secs_f64(),
            rate_bps: self.rate().as_bps(),
            direct_estimate_bps: self.direct_estimate.map(Rate::as_bps),
            ratio_to_sampled_direct: self.ratio_to_sampled_direct(),
            sampling_rate_bps: self.phases.sampling.map(Rate::as_bps),
            completion_rate_bps: self.phases.completion.map(Rate::as_bps),
            completion_path: self.phases.completion_path.clone(),
        }
    }
}
