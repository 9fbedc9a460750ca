//! Runs a tool over the probe service as `thalweg measure --accept-busy` does.

use anyhow::bail;
use std::time::{Duration, Instant};
use thalweg_measure::{
    estimators::{Estimator, Finding},
    train::Doubt,
};
use thalweg_probe::client::NodeSession;
use thalweg_probe::trains::{Direction, run as measure};

/// The result of a run.
#[derive(Debug, Default)]
pub struct ToolRun {
    /// The tool's findings; empty if it found nothing in time.
    pub findings: Vec<Finding>,
    /// Doubts about the findings.
    pub doubts: Vec<Doubt>,
    /// Why there are no findings.
    pub why: Option<String>,
    pub took: Duration,
}

/// Lets the tool measure, for at most `patience`.
///
/// # Errors
/// When the service is gone.
pub fn drive(
    tool: &mut dyn Estimator,
    node: &mut NodeSession,
    patience: Duration,
) -> anyhow::Result<ToolRun> {
    let runtime = crate::runtime()?;
    let began = Instant::now();
    let found = runtime.block_on(measure(node, tool, Direction::There, patience, &mut |_| {}));
    let took = began.elapsed();
    match found {
        Ok(found) => {
            Ok(ToolRun { findings: found.findings, doubts: found.doubts, why: None, took })
        }
        Err(why) if node.is_gone() => bail!(why),
        Err(why) => Ok(ToolRun { why: Some(why.to_string()), took, ..ToolRun::default() }),
    }
}
