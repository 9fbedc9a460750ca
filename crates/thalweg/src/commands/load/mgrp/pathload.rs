//! Pathload over the probe service, one measurement after the other (§4.1, Fig. 10 and 11).

use super::{
    run::{Clock, Ready},
    shots::{Log, PATIENCE},
};
use crate::commands::probe_service::{Opened, Order, Told};
use anyhow::ensure;
use std::{
    thread,
    time::{Duration, Instant},
};
use thalweg_measure::{
    estimators::{Estimator as _, Pace, Pathload, PathloadSettings, Step},
    train::Train,
};

/// A train is said so long before it goes, so that riders may wait for it: the carrier's `hold`.
const AHEAD: Duration = Duration::from_millis(10);

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

/// Measures until then; a measurement that is under way by then is none.
///
/// # Errors
/// When a service is gone, or refuses again and again.
pub fn measure(
    pace: Pace,
    ready: &mut Ready<'_>,
    clock: &Clock,
    (until, patience): (f64, Duration),
) -> anyhow::Result<(Log, Vec<Round>)> {
    let (mut log, mut rounds) = (Log::default(), Vec::new());
    while clock.now() < until {
        let tool = Pathload::new(settings(pace, &ready.opened));
        let began = clock.now();
        let deadline = began + patience.as_secs_f64();
        let mut one = One { tool, log: &mut log, ended: Instant::now() };
        match one.run(ready, clock, deadline.min(until))? {
            End::Found => rounds.push(Round { began, took: Some(clock.now() - began) }),
            End::Late if deadline > until => break,
            End::Late => {
                clock.sleep_until(deadline);
                rounds.push(Round { began, took: None });
            }
            End::Nothing => rounds.push(Round { began, took: None }),
        }
    }
    Ok((log, rounds))
}

/// How a measurement ended.
enum End {
    Found,
    Nothing,
    /// Its time was over.
    Late,
}

struct One<'a> {
    tool: Pathload,
    log: &'a mut Log,
    /// When the last train had left.
    ended: Instant,
}

impl One<'_> {
    fn run(&mut self, ready: &mut Ready<'_>, clock: &Clock, until: f64) -> anyhow::Result<End> {
        loop {
            let (train, after) = match self.tool.next() {
                Step::Done(Ok(_)) => return Ok(End::Found),
                Step::Done(Err(_)) => return Ok(End::Nothing),
                Step::Send { train, after } => (train, after),
            };
            // The pause is from the train before to this one, and the report was waited for in it.
            let after = after.saturating_sub(self.ended.elapsed()).max(AHEAD);
            if clock.now() + after.as_secs_f64() >= until {
                return Ok(End::Late);
            }
            let Some(told) = self.send(&train, after, ready, clock)? else {
                thread::sleep(REST);
                return Ok(End::Nothing);
            };
            self.tool.seen(&told.flight());
        }
    }

    fn send(
        &mut self,
        train: &Train,
        after: Duration,
        ready: &mut Ready<'_>,
        clock: &Clock,
    ) -> anyhow::Result<Option<Told>> {
        let at = clock.now() + after.as_secs_f64();
        let order = Order { train, after, header: &[], awaits: true, accepts_busy: true };
        self.ended = Instant::now() + after + train.takes();
        match ready.service.send(&order)? {
            Ok(told) => {
                self.log.add(train, &told, at, clock);
                Ok(Some(told))
            }
            Err(why) => {
                self.log.refused += 1;
                ensure!(self.log.refused < PATIENCE, "trains are refused: {why}");
                Ok(None)
            }
        }
    }
}

fn settings(pace: Pace, opened: &Opened) -> PathloadSettings {
    let (rtt, largest, host) = (opened.rtt(), opened.largest, opened.host());
    PathloadSettings { pace, rtt, largest, host, is_coalesced: false, may_carry: true }
}
