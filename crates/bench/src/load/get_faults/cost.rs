//! The cost of stopping and resuming a download: time, and bytes that are fetched twice.

use super::{
    Common, counts,
    download::EndedDownload,
    tally::{FaultTrial, TrialTally},
};
use crate::load::report::Report;
use std::{sync::Arc, time::Duration};

/// Measures how long the download takes without any fault and without a tracer.
///
/// # Errors
/// When it cannot be started or watched; a failure of the download is counted.
pub fn measure_undisturbed(
    common: &Common,
    url: &str,
    right: &Arc<Vec<u8>>,
    tally: &mut TrialTally,
) -> anyhow::Result<Duration> {
    let url = url.replace("@n", "calm");
    let trial = FaultTrial::new(&common.dir, "calm", &url, &[Arc::clone(right)], &common.get)?;
    let ended = trial.order.run()?;
    tally.expect_success(&trial, &ended, "undisturbed")?;
    tally.end(trial, "undisturbed")?;
    Ok(ended.took)
}

/// The costs of all trials, in seconds and megabytes.
#[derive(Debug, Default)]
pub struct Cost {
    lost: Vec<f64>,
    twice: Vec<f64>,
}

impl Cost {
    /// Adds a stopped download and its second run: how much longer both took than the undisturbed one (`calm`), and how
    /// many bytes beyond the file's `length` the server sent for `url`.
    ///
    /// # Errors
    /// When the server does not report its count.
    pub fn add(
        &mut self,
        calm: Duration,
        runs: [&EndedDownload; 2],
        url: &str,
        length: usize,
    ) -> anyhow::Result<()> {
        let took: f64 = runs.iter().map(|run| run.took.as_secs_f64()).sum();
        self.lost.push(took - calm.as_secs_f64());
        self.twice.push(counts::sent_bytes(url)?.saturating_sub(length as u64) as f64 / 1e6);
        Ok(())
    }

    /// Reports the means and the greatest values.
    pub fn report(&self, report: &mut Report) {
        for (name, unit, values) in [("lost", "s", &self.lost), ("twice", "MB", &self.twice)] {
            report.add(name, unit, values.iter().sum::<f64>() / values.len() as f64);
            let most = values.iter().copied().max_by(f64::total_cmp);
            report.add(format!("{name}_most"), unit, most.unwrap_or(f64::NAN));
        }
    }
}
