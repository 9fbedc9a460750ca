//! How a download went.

use std::{path::PathBuf, time::Duration};
use thalweg_base::job::Event;
use thalweg_paths::history::Observed;
use thalweg_units::{ByteSize, Rate};

/// How a download went.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The file, under its final name.
    pub target: PathBuf,
    /// Its length.
    pub length: ByteSize,
    /// Bytes that came over the network in this session.
    pub fetched: ByteSize,
    /// Of these, bytes beyond what was missing when it started; see
    /// [`Event::Finished`].
    pub duplicate: ByteSize,
    /// From start to publication.
    pub took: Duration,
    /// What the direct path reached in sampling.
    pub direct_estimate: Option<Rate>,
    /// How its two phases went.
    pub phases: Phases,
    /// What was seen of the paths, for [`thalweg_paths::history`].
    pub observed: Vec<Observed>,
    /// Relays that delivered other bytes than the object's, and what of.
    pub corrupt: Vec<(String, String)>,
}

/// Sampling and completion (UKAIRO §3.2.1), in the last attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phases {
    /// All paths' bytes over the time until the first path was chosen.
    pub sampling: Option<Rate>,
    /// All bytes from then on over the time until the last one came.
    pub completion: Option<Rate>,
    /// The path that was chosen last.
    pub completion_path: Option<String>,
}

impl Outcome {
    /// Fetched bytes over the whole time.
    pub fn rate(&self) -> Rate {
        Rate::over(self.fetched, self.took)
    }

    /// How many times the direct path's sampled rate the download reached.
    ///
    /// This overstates the gain: the direct path was sampled for about a second,
    /// in slow start, beside the other paths' flows.
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
