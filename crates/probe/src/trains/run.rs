//! Runs a measurement tool over a session.

use super::{Session, SessionError, session::READY};
use std::{
    future::Future,
    time::{Duration, Instant},
};
use thalweg_measure::{
    estimators::{Estimator, EstimatorError, Finding, Progress, Step},
    train::{Doubt, Flight, Punctuality, Train},
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};

/// How long before it is sent a train is announced if packets may ride in it: the default of the carrier's `hold`.
const AHEAD: Duration = Duration::from_millis(10);

/// The direction in which a path is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the member.
    There,
    /// From the member.
    Back,
}

/// Sends a tool's trains: a session of this process, or the node through its probe service.
pub trait TrainSender {
    /// Sends one train after this pause.
    fn send_train(
        &mut self,
        train: &Train,
        way: Direction,
        after: Duration,
    ) -> impl Future<Output = Result<Flight, SessionError>> + Send;

    /// Whether packets may ride in trains in this direction. Each train is then announced 10 ms ahead.
    fn rides(&self, way: Direction) -> bool;

    /// The doubts that follow from the hosts' calibrations, whatever the result.
    fn doubts(&self, way: Direction) -> Vec<Doubt>;
}

impl<IO: AsyncRead + AsyncWrite + Send + Unpin> TrainSender for Session<IO> {
    async fn send_train(
        &mut self,
        train: &Train,
        way: Direction,
        after: Duration,
    ) -> Result<Flight, SessionError> {
        if way == Direction::Back {
            sleep(after).await;
            return self.receive(train.clone()).await;
        }
        let at = self.announce(train, after);
        sleep(after.saturating_sub(READY)).await;
        let departed = self.depart_at(train.clone(), Vec::new(), at).await?;
        self.arrivals(departed).await
    }

    fn rides(&self, way: Direction) -> bool {
        way == Direction::There && self.carries()
    }

    fn doubts(&self, way: Direction) -> Vec<Doubt> {
        Self::doubts(self, way)
    }
}

/// The cost of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The number of trains.
    pub trains: u32,
    /// Bytes of probes, IP and UDP headers included.
    pub bytes: u64,
    /// Riders' bytes among them (MGRP §2.4 c), which would have been sent anyway.
    pub rode: u64,
    /// The time since the start.
    pub took: Duration,
}

/// The state of a measurement after a train.
#[derive(Clone, Debug)]
pub struct TrainEvent {
    pub progress: Progress,
    /// The cost so far.
    pub cost: Cost,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    pub findings: Vec<Finding>,
    /// Doubts about the findings; if there are none, they are valid.
    pub doubts: Vec<Doubt>,
    pub cost: Cost,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    #[error("{why}{}", after(.so_far))]
    Session {
        #[source]
        why: SessionError,
        /// The tool's progress until then.
        so_far: Progress,
    },
    /// The tool found nothing.
    #[error(transparent)]
    EstimatorError(#[from] EstimatorError),
    /// The measurement would take longer than allowed.
    #[error("no result within {} s; estimate after {} trains: {}", .0.as_secs(), .1.trains, describe(.1))]
    Slow(Duration, Progress),
}

fn describe(progress: &Progress) -> String {
    let mbps = |bps: f64| format!("{:.1} Mbit/s", bps / 1e6);
    match progress.between {
        Some((low, Some(high))) => format!("between {} and {}", mbps(low), mbps(high)),
        Some((low, None)) => format!("at least {}", mbps(low)),
        None => "none".to_owned(),
    }
}

fn after(so_far: &Progress) -> String {
    match so_far.trains {
        0 => String::new(),
        trains => format!(" (estimate after {trains} trains: {})", describe(so_far)),
    }
}

/// Measures with the tool, for at most `longest`; `told` is called after each train.
///
/// # Errors
/// [`MeasureError`].
pub async fn run<S, T, F>(
    session: &mut S,
    tool: &mut T,
    way: Direction,
    longest: Duration,
    told: &mut F,
) -> Result<Measured, MeasureError>
where
    S: TrainSender,
    T: Estimator + ?Sized,
    F: FnMut(TrainEvent) + ?Sized,
{
    let (began, mut cost, mut punctuality) =
        (Instant::now(), Cost::default(), Punctuality::default());
    let mut ended = None;
    loop {
        let (train, after) = match tool.next() {
            Step::Done(result) => {
                return Ok(result_of(session, tool, (way, &punctuality), cost, result?));
            }
            Step::Send { train, after } => (train, after),
        };
        // The time for the report counts towards the pause that the tool wants.
        let gone = ended.map_or(Duration::ZERO, |at: Instant| at.elapsed());
        let after = after.saturating_sub(gone).max(ahead(session, &train, way));
        if began.elapsed() + after > longest {
            let findings = tool.partial_findings();
            let findings = findings.ok_or_else(|| MeasureError::Slow(longest, tool.progress()))?;
            return Ok(result_of(session, tool, (way, &punctuality), cost, findings));
        }
        let left = Instant::now() + after;
        let flown = session.send_train(&train, way, after).await;
        let so_far = |why| MeasureError::Session { why, so_far: tool.progress() };
        let flight = flown.map_err(so_far)?;
        ended = Some(left + flight.tally.transmitted);
        punctuality.note(&train, &flight);
        tool.record(&flight);
        // Several trains may have been sent as one.
        (cost.trains, cost.bytes) = (tool.progress().trains, cost.bytes + train.bytes());
        cost.rode += flight.tally.carried_bytes;
        cost.took = began.elapsed();
        told(TrainEvent { progress: tool.progress(), cost });
    }
}

/// How long before it is sent the train is to be announced.
fn ahead(session: &impl TrainSender, train: &Train, way: Direction) -> Duration {
    let may_carry = || train.probes().iter().any(|probe| probe.may_carry);
    if session.rides(way) && may_carry() { AHEAD } else { Duration::ZERO }
}

fn result_of<T: Estimator + ?Sized>(
    session: &impl TrainSender,
    tool: &T,
    (way, punctuality): (Direction, &Punctuality),
    cost: Cost,
    findings: Vec<Finding>,
) -> Measured {
    let doubts = [session.doubts(way), punctuality.doubts(), tool.doubts()].concat();
    Measured { findings, doubts, cost }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_measure::train::Probe;

    /// Sends a train without riders and two that may carry some, each at once.
    struct Three(Vec<Flight>);

    impl Three {
        fn train(&self) -> Train {
            let may_carry = !self.0.is_empty();
            Train::uniform(Probe { size: 300, header: 0, gap: Duration::ZERO, may_carry }, 2)
                .unwrap()
        }
    }

    impl Estimator for Three {
        fn name(&self) -> &'static str {
            "three"
        }

        fn next(&mut self) -> Step {
            match self.0.len() {
                3 => Step::Done(Ok(Vec::new())),
                _ => Step::Send { train: self.train(), after: Duration::ZERO },
            }
        }

        fn record(&mut self, flight: &Flight) {
            self.0.push(flight.clone());
        }

        fn progress(&self) -> Progress {
            Progress::default()
        }
    }

    /// Whether packets ride, and how long ahead each train was announced.
    struct Fake(bool, Vec<Duration>);

    impl TrainSender for Fake {
        async fn send_train(
            &mut self,
            _train: &Train,
            _way: Direction,
            after: Duration,
        ) -> Result<Flight, SessionError> {
            self.1.push(after);
            Ok(Flight::default())
        }

        fn rides(&self, way: Direction) -> bool {
            self.0 && way == Direction::There
        }

        fn doubts(&self, _way: Direction) -> Vec<Doubt> {
            Vec::new()
        }
    }

    #[tokio::test]
    async fn trains_in_which_packets_may_ride_are_announced_ahead() {
        for (rides, way, ahead) in [
            (true, Direction::There, [Duration::ZERO, AHEAD, AHEAD]),
            (true, Direction::Back, [Duration::ZERO; 3]),
            (false, Direction::There, [Duration::ZERO; 3]),
        ] {
            let mut fake = Fake(rides, Vec::new());
            let longest = Duration::from_secs(9);
            run(&mut fake, &mut Three(Vec::new()), way, longest, &mut |_| {}).await.unwrap();
            assert_eq!(fake.1, ahead, "{rides} {way:?}");
        }
    }
}
