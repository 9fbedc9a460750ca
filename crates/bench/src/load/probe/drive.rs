//! A tool at work over the probe service, as `thalweg measure --accept-busy` has it.

use anyhow::bail;
use std::time::{Duration, Instant};
use thalweg_measure::{
    estimators::{Estimator, Finding},
    train::Doubt,
};
use thalweg_probe::client::ByNode;
use thalweg_probe::trains::{Way, run as measure};

/// What came of it.
#[derive(Debug, Default)]
pub struct Driven {
    /// What the tool found; none: nothing in time.
    pub findings: Vec<Finding>,
    /// What speaks against it.
    pub doubts: Vec<Doubt>,
    /// Why it found nothing.
    pub why: Option<String>,
    /// What it took.
    pub took: Duration,
}

/// Has the tool measure, for so long at most.
///
/// # Errors
/// When the service is gone.
pub fn drive(
    tool: &mut dyn Estimator,
    node: &mut ByNode,
    patience: Duration,
) -> anyhow::Result<Driven> {
    let runtime = crate::runtime()?;
    let began = Instant::now();
    let found = runtime.block_on(measure(node, tool, Way::There, patience, &mut |_| {}));
    let took = began.elapsed();
    match found {
        Ok(found) => Ok(Driven { findings: found.findings, doubts: found.doubts, why: None, took }),
        Err(why) if node.is_gone() => bail!(why),
        Err(why) => Ok(Driven { why: Some(why.to_string()), took, ..Driven::default() }),
    }
}
