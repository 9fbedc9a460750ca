//! A tool at work over a session.

use super::{Session, SessionError, session::READY};
use std::{
    future::Future,
    time::{Duration, Instant},
};
use thalweg_measure::{
    estimators::{Estimator, Finding, Progress, Step, Unfound},
    train::{Doubt, Flight, Punctuality, Train},
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};

/// A train is said so long before it goes where packets may ride in it: the carrier's `hold`, unless that is set.
const AHEAD: Duration = Duration::from_millis(10);

/// In which direction a path is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the member.
    There,
    /// From the member.
    Back,
}

/// Who has a tool's trains sent: a session of this process's, or a node by its probe service.
pub trait Flies {
    /// One train, after this pause.
    fn fly(
        &mut self,
        train: &Train,
        way: Way,
        after: Duration,
    ) -> impl Future<Output = Result<Flight, SessionError>> + Send;

    /// Whether packets may ride in such trains: each is then said 10 ms before it goes, and waits as long.
    fn rides(&self, way: Way) -> bool;

    /// What the hosts' calibrations say against whatever is found out.
    fn doubts(&self, way: Way) -> Vec<Doubt>;
}

impl<IO: AsyncRead + AsyncWrite + Send + Unpin> Flies for Session<IO> {
    async fn fly(
        &mut self,
        train: &Train,
        way: Way,
        after: Duration,
    ) -> Result<Flight, SessionError> {
        if way == Way::Back {
            sleep(after).await;
            return self.receive(train.clone()).await;
        }
        let at = self.announce(train, after);
        sleep(after.saturating_sub(READY)).await;
        let departed = self.depart_at(train.clone(), Vec::new(), at).await?;
        self.arrivals(departed).await
    }

    fn rides(&self, way: Way) -> bool {
        way == Way::There && self.carries()
    }

    fn doubts(&self, way: Way) -> Vec<Doubt> {
        Self::doubts(self, way)
    }
}

/// What a measurement has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Trains.
    pub trains: u32,
    /// Bytes of probes, IP's and UDP's headers included.
    pub bytes: u64,
    /// Of these, riders' (MGRP §2.4 c): they would have been sent without it, too.
    pub rode: u64,
    /// Time.
    pub took: Duration,
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// How far the tool is.
    pub progress: Progress,
    /// What it has taken so far.
    pub cost: Cost,
}

/// What was found out.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What the tool says.
    pub findings: Vec<Finding>,
    /// Why that may be wrong; none: it is valid.
    pub doubts: Vec<Doubt>,
    /// What it took.
    pub cost: Cost,
}

/// Nothing was measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The session.
    #[error("{why}{}", after(.so_far))]
    Session {
        /// What failed.
        #[source]
        why: SessionError,
        /// How far it was.
        so_far: Progress,
    },
    /// The tool.
    #[error(transparent)]
    Unfound(#[from] Unfound),
    /// It would take longer.
    #[error("not within {} s; {} trains tell this much: {}", .0.as_secs(), .1.trains, known(.1))]
    Slow(Duration, Progress),
}

fn known(progress: &Progress) -> String {
    let mbps = |bps: f64| format!("{:.1} Mbit/s", bps / 1e6);
    match progress.between {
        Some((low, Some(high))) => format!("between {} and {}", mbps(low), mbps(high)),
        Some((low, None)) => format!("at least {}", mbps(low)),
        None => "nothing".to_owned(),
    }
}

fn after(so_far: &Progress) -> String {
    match so_far.trains {
        0 => String::new(),
        trains => format!(" (after {trains} trains, which tell this much: {})", known(so_far)),
    }
}

/// Has the tool measure, for so long at most; `told` hears of each train.
///
/// # Errors
/// [`MeasureError`].
pub async fn run<S, T, F>(
    session: &mut S,
    tool: &mut T,
    way: Way,
    longest: Duration,
    told: &mut F,
) -> Result<Measured, MeasureError>
where
    S: Flies,
    T: Estimator + ?Sized,
    F: FnMut(Event) + ?Sized,
{
    let (began, mut cost, mut punctuality) =
        (Instant::now(), Cost::default(), Punctuality::default());
    let mut ended = None;
    loop {
        let (train, after) = match tool.next() {
            Step::Done(result) => {
                return Ok(over(session, tool, (way, &punctuality), cost, result?));
            }
            Step::Send { train, after } => (train, after),
        };
        // What its report took is of the pause that the tool wants.
        let gone = ended.map_or(Duration::ZERO, |at: Instant| at.elapsed());
        let after = after.saturating_sub(gone).max(ahead(session, &train, way));
        if began.elapsed() + after > longest {
            let findings = tool.by_now();
            let findings = findings.ok_or_else(|| MeasureError::Slow(longest, tool.progress()))?;
            return Ok(over(session, tool, (way, &punctuality), cost, findings));
        }
        let left = Instant::now() + after;
        let flown = session.fly(&train, way, after).await;
        let so_far = |why| MeasureError::Session { why, so_far: tool.progress() };
        let flight = flown.map_err(so_far)?;
        ended = Some(left + flight.tally.transmitted);
        punctuality.note(&train, &flight);
        tool.seen(&flight);
        // Several may have gone as one.
        (cost.trains, cost.bytes) = (tool.progress().trains, cost.bytes + train.bytes());
        cost.rode += flight.tally.carried_bytes;
        cost.took = began.elapsed();
        told(Event { progress: tool.progress(), cost });
    }
}

/// How long before it goes the train is to be said.
fn ahead(session: &impl Flies, train: &Train, way: Way) -> Duration {
    let may_carry = || train.probes().iter().any(|probe| probe.may_carry);
    if session.rides(way) && may_carry() { AHEAD } else { Duration::ZERO }
}

fn over<T: Estimator + ?Sized>(
    session: &impl Flies,
    tool: &T,
    (way, punctuality): (Way, &Punctuality),
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

    /// Wants a train that carries nothing and two that do, each at once.
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

        fn seen(&mut self, flight: &Flight) {
            self.0.push(flight.clone());
        }

        fn progress(&self) -> Progress {
            Progress::default()
        }
    }

    /// Whether anything rides, and how long before each train it was said.
    struct Fake(bool, Vec<Duration>);

    impl Flies for Fake {
        async fn fly(
            &mut self,
            _train: &Train,
            _way: Way,
            after: Duration,
        ) -> Result<Flight, SessionError> {
            self.1.push(after);
            Ok(Flight::default())
        }

        fn rides(&self, way: Way) -> bool {
            self.0 && way == Way::There
        }

        fn doubts(&self, _way: Way) -> Vec<Doubt> {
            Vec::new()
        }
    }

    #[tokio::test]
    async fn trains_are_said_ahead_where_packets_may_ride_in_them() {
        for (rides, way, ahead) in [
            (true, Way::There, [Duration::ZERO, AHEAD, AHEAD]),
            (true, Way::Back, [Duration::ZERO; 3]),
            (false, Way::There, [Duration::ZERO; 3]),
        ] {
            let mut fake = Fake(rides, Vec::new());
            let longest = Duration::from_secs(9);
            run(&mut fake, &mut Three(Vec::new()), way, longest, &mut |_| {}).await.unwrap();
            assert_eq!(fake.1, ahead, "{rides} {way:?}");
        }
    }
}
