//! A tool at work over the probe service.

use crate::commands::probe_service::{Order, Service};
use std::time::{Duration, Instant};
use thalweg_measure::estimators::{Estimator, Finding, Step};

/// A train is said so long before it goes, so that riders may wait for it: the carrier's `hold`.
const AHEAD: Duration = Duration::from_millis(10);

/// What came of it.
#[derive(Debug, Default)]
pub struct Driven {
    /// What the tool found; none: nothing in time.
    pub findings: Vec<Finding>,
    /// Why not.
    pub why: Option<String>,
    /// What it took.
    pub took: Duration,
}

/// Has the tool measure, for so long at most; the trains it sends are said `ahead` where riders are to wait for them.
///
/// # Errors
/// When the service is gone.
pub fn drive(
    tool: &mut dyn Estimator,
    service: &mut Service,
    patience: Duration,
    has_riders: bool,
) -> anyhow::Result<Driven> {
    let began = Instant::now();
    let ahead = if has_riders { AHEAD } else { Duration::ZERO };
    let mut ended = began;
    loop {
        let done = |findings, why| Ok(Driven { findings, why, took: began.elapsed() });
        let (train, after) = match tool.next() {
            Step::Done(Ok(findings)) => return done(findings, None),
            Step::Done(Err(why)) => return done(Vec::new(), Some(why.to_string())),
            Step::Send { train, after } => (train, after),
        };
        // The pause is from the train before, and its report was waited for in it.
        let after = after.saturating_sub(ended.elapsed()).max(ahead);
        if began.elapsed() + after > patience {
            return done(tool.by_now().unwrap_or_default(), Some("not in time".to_owned()));
        }
        ended = Instant::now() + after + train.takes();
        let order = Order { train: &train, after, header: &[], awaits: true, accepts_busy: true };
        match service.send(&order)? {
            Ok(told) => tool.seen(&told.flight()),
            Err(why) => return done(Vec::new(), Some(why)),
        }
    }
}
