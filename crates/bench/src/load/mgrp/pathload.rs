//! Pathload over the probe service, one measurement after the other (§4.1, Fig. 10 and 11).

use super::{
    run::{Clock, Ready},
    shots::{Log, PATIENCE},
};
use anyhow::{bail, ensure};
use std::{thread, time::Duration};
use thalweg_measure::{
    estimators::Pace,
    train::{Doubt, Flight, Train},
};
use thalweg_probe::client::ByNode;
use thalweg_probe::trains::{Flies, MeasureError, SessionError, Way, run};

/// After a refusal nothing is sent for so long.
const REST: Duration = Duration::from_millis(500);

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// When it began, s.
    pub began: f64,
    /// How long it took, s; `None`: it did not end in time, or found nothing out.
    pub took: Option<f64>,
}

/// Measures until then. Of what begins too late to have all of `patience` nothing counts: quick ones alone would be seen of it.
///
/// # Errors
/// When a service is gone, or refuses again and again.
pub fn measure(
    pace: Pace,
    ready: &mut Ready<'_>,
    clock: &Clock,
    (until, patience): (f64, Duration),
) -> anyhow::Result<(Log, Vec<Round>)> {
    let runtime = crate::runtime()?;
    let (mut log, mut rounds) = (Log::default(), Vec::new());
    while clock.now() < until {
        // Both arms say their trains ahead: the carrier alone knows whether anything waits.
        let mut tool = ready.node.ends().pathload(pace, true);
        let began = clock.now();
        let deadline = began + patience.as_secs_f64();
        let left = Duration::from_secs_f64((deadline.min(until) - began).max(0.0));
        let mut logged = Logged { node: &mut ready.node, log: &mut log, clock };
        let found = runtime.block_on(run(&mut logged, &mut tool, Way::There, left, &mut |_| {}));
        let took = match found {
            Ok(_) => Some(clock.now() - began),
            Err(MeasureError::Slow(..)) => {
                clock.sleep_until(deadline.min(until));
                None
            }
            Err(why) => {
                rest(&ready.node, &mut log, why)?;
                None
            }
        };
        if deadline <= until {
            rounds.push(Round { began, took });
        }
    }
    Ok((log, rounds))
}

/// After a measurement that found nothing.
fn rest(node: &ByNode, log: &mut Log, why: MeasureError) -> anyhow::Result<()> {
    if let MeasureError::Session { why, .. } = why {
        if node.is_gone() {
            bail!(why);
        }
        log.refused += 1;
        ensure!(log.refused < PATIENCE, "trains are refused: {why}");
        thread::sleep(REST);
    }
    Ok(())
}

/// The node's trains, of which the log has each.
struct Logged<'a> {
    node: &'a mut ByNode,
    log: &'a mut Log,
    clock: &'a Clock,
}

impl Flies for Logged<'_> {
    async fn fly(
        &mut self,
        train: &Train,
        _way: Way,
        after: Duration,
    ) -> Result<Flight, SessionError> {
        let at = self.clock.now() + after.as_secs_f64();
        let told = self.node.told(train, after)?;
        self.log.add(train, &told, at, self.clock);
        Ok(told.flight())
    }

    fn rides(&self, way: Way) -> bool {
        self.node.rides(way)
    }

    fn doubts(&self, way: Way) -> Vec<Doubt> {
        self.node.doubts(way)
    }
}
