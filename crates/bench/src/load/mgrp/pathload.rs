//! Pathload over the probe service, one measurement after the other (§4.1, Fig. 10 and 11).

use super::{
    run::{Clock, ReadyCopy},
    shots::{PATIENCE, ProbeLog},
};
use anyhow::{bail, ensure};
use std::{thread, time::Duration};
use thalweg_measure::{
    estimators::Pace,
    train::{Doubt, Flight, Train},
};
use thalweg_probe::client::NodeSession;
use thalweg_probe::trains::{Direction, MeasureError, SessionError, TrainSender, run};

/// The pause after a refusal.
const REST: Duration = Duration::from_millis(500);

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// The begin of the measurement, s.
    pub began: f64,
    /// Its duration, s; `None` if it did not end in time or had no result.
    pub took: Option<f64>,
}

/// Measures until `until`. A measurement that begins too late to have all of `patience` does not count, because only
/// fast ones would be observed.
///
/// # Errors
/// When a service is gone or refuses repeatedly.
pub fn measure(
    pace: Pace,
    ready: &mut ReadyCopy<'_>,
    clock: &Clock,
    (until, patience): (f64, Duration),
) -> anyhow::Result<(ProbeLog, Vec<Round>)> {
    let runtime = crate::runtime()?;
    let (mut log, mut rounds) = (ProbeLog::default(), Vec::new());
    while clock.now() < until {
        // Both arms announce their trains in advance; whether a packet waits to ride only the carrier knows.
        let mut tool = ready.node.ends().pathload(pace, true);
        let began = clock.now();
        let deadline = began + patience.as_secs_f64();
        let left = Duration::from_secs_f64((deadline.min(until) - began).max(0.0));
        let mut logged = LoggingSender { node: &mut ready.node, log: &mut log, clock };
        let found =
            runtime.block_on(run(&mut logged, &mut tool, Direction::There, left, &mut |_| {}));
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

/// Pauses after a measurement without result.
fn rest(node: &NodeSession, log: &mut ProbeLog, why: MeasureError) -> anyhow::Result<()> {
    if let MeasureError::Session { why, .. } = why {
        if node.is_gone() {
            bail!(why);
        }
        log.refused += 1;
        ensure!(log.refused < PATIENCE, "the node refuses trains: {why}");
        thread::sleep(REST);
    }
    Ok(())
}

/// The node's trains, each of which is recorded in the log.
struct LoggingSender<'a> {
    node: &'a mut NodeSession,
    log: &'a mut ProbeLog,
    clock: &'a Clock,
}

impl TrainSender for LoggingSender<'_> {
    async fn send_train(
        &mut self,
        train: &Train,
        _way: Direction,
        after: Duration,
    ) -> Result<Flight, SessionError> {
        let at = self.clock.now() + after.as_secs_f64();
        let report = self.node.send_and_report(train, after)?;
        self.log.add(train, &report, at, self.clock);
        Ok(report.flight())
    }

    fn rides(&self, way: Direction) -> bool {
        self.node.rides(way)
    }

    fn doubts(&self, way: Direction) -> Vec<Doubt> {
        self.node.doubts(way)
    }
}
