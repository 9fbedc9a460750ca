//! Continuous measurement of links on request. Live streams request it for their legs.

use super::probe::ProbeError;
use crate::{
    prober::Prober,
    trains::{Direction, Payer, Session, Trains, open, run},
};
use std::{collections::BTreeMap, future::pending, time::Duration};
use thalweg_base::log::{Event, Log};
use thalweg_measure::{
    estimators::{Estimator, Finding, Pace, Quantity},
    train::sizes,
};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::Stream;
use thalweg_units::{ByteSize, NodeId};
use thalweg_wire::mesh::Name;
use tokio::{
    sync::watch,
    task::yield_now,
    time::{Instant, sleep},
};

/// The pause after a failed measurement.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// The pause after a rate that is not available.
const UNAVAILABLE_PAUSE: Duration = Duration::from_millis(400);

/// The decay of the expected riders' rate from one measurement to the next.
const HIDDEN_DECAY: f64 = 0.7;

/// The longest measurement: MGRP §4.2.1.
const LONGEST: Duration = Duration::from_secs(60);

/// The parameters of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct LinkMeasurerSettings {
    /// The pauses between pathload's trains.
    pub pace: Pace,
    /// Whether packets ride in the trains.
    pub rides: bool,
}

/// The measurement requested for a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeasurementKind {
    /// The range of the available bandwidth.
    Range,
    /// Whether this rate in bit/s is available.
    Fits(f64),
}

/// A request for a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasurementRequest {
    pub kind: MeasurementKind,
    /// The state of the link's streams: a number that changes when measurements that began before become useless. Such
    /// a measurement is cancelled.
    pub state: u64,
}

/// The result for a link.
#[derive(Clone, Debug)]
pub struct LinkMeasurement {
    /// The member at the other end of the link.
    pub to: Name,
    pub kind: MeasurementKind,
    /// The available bandwidth, bit/s.
    pub value: f64,
    /// Its lower end, bit/s.
    pub low: f64,
    /// Its upper end, bit/s.
    pub high: f64,
    /// Whether more may be available.
    pub is_lower_bound: bool,
    /// When the measurement began.
    pub began: Instant,
    /// The bytes of its trains.
    pub bytes: u64,
}

/// News of a requested measurement.
#[derive(Clone, Debug)]
pub enum LinkNews {
    Found(LinkMeasurement),
    /// No connection to this member's node.
    Unreachable(Name),
}

/// The expected rates of riders in trains, bit/s, by member: the highest of the last trains.
type HiddenRates = BTreeMap<Name, f64>;

/// The requested measurements, by member.
pub type MeasurementRequests = BTreeMap<Name, MeasurementRequest>;

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureCause {
    /// No connection to the node.
    Unreachable,
    Other,
}

/// Measures requested links in turn.
#[derive(Clone, Debug)]
pub struct LinkMeasurer {
    run: LinkMeasurerSettings,
    prober: Prober,
    trains: Trains,
    dialer: MemberDialer,
    log: Log,
}

/// A session kept from one measurement to the next.
struct OpenSession {
    to: Name,
    session: Session<Stream>,
    key: NodeId,
    largest: u16,
}

impl LinkMeasurer {
    /// Creates a measurer that sends these trains and spends this prober's budget.
    pub fn new(
        run: LinkMeasurerSettings,
        prober: Prober,
        trains: Trains,
        dialer: MemberDialer,
        log: Log,
    ) -> Self {
        Self { run, prober, trains, dialer, log }
    }

    /// Measures the wanted links in turn until the future is dropped; passes all news to `report`.
    pub async fn run(
        self,
        mut wanted: watch::Receiver<MeasurementRequests>,
        report: impl Fn(LinkNews),
    ) {
        let (mut last, mut open): (Option<Name>, Option<OpenSession>) = (None, None);
        let mut hidden = HiddenRates::new();
        loop {
            let next = next_after(&wanted.borrow_and_update(), last.as_ref());
            let Some((to, MeasurementRequest { kind, state })) = next else {
                if let Some(open) = open.take() {
                    open.session.close().await;
                }
                if wanted.changed().await.is_err() {
                    return;
                }
                continue;
            };
            if open.as_ref().is_some_and(|open| open.to != to)
                && let Some(other) = open.take()
            {
                other.session.close().await;
            }
            let mut news = wanted.clone();
            let measured = tokio::select! {
                measured = self.measure(&to, kind, open.take(), &mut hidden) => measured,
                () = superseded(&mut news, &to, state) => {
                    self.log.put(Event::new("stream_measurement_cancelled").with("to", &to));
                    continue;
                }
            };
            match measured {
                (Ok(found), kept) => {
                    open = kept;
                    let is_free = found.is_lower_bound;
                    report(LinkNews::Found(found));
                    // The result may change what is requested.
                    yield_now().await;
                    // A rate that is not available now is rarely available a moment later.
                    if matches!(kind, MeasurementKind::Fits(_)) && !is_free {
                        sleep(UNAVAILABLE_PAUSE).await;
                    }
                }
                (Err(failed), kept) => {
                    open = kept;
                    if failed == FailureCause::Unreachable {
                        report(LinkNews::Unreachable(to.clone()));
                    }
                    sleep(FAILURE_PAUSE).await;
                }
            }
            last = Some(to);
        }
    }

    /// Opens a session with the member.
    async fn open(&self, to: &Name) -> Result<OpenSession, ProbeError> {
        let (mut session, key) = open(&self.trains, &self.dialer, to, self.run.rides).await?;
        // The reports of the stream's legs correct a wrong result within a second or two.
        session.accept_busy(true);
        session.pay_by(self.payer(key));
        let largest = session.fitting(Direction::There, &sizes(session.overhead())).await?;
        Ok(OpenSession { to: to.clone(), session, key, largest })
    }

    fn payer(&self, key: NodeId) -> Payer {
        let left = self.prober.probe_budget().left();
        Payer::new(self.trains.clone(), key, self.prober.lane()).at_most(left)
    }

    async fn measure(
        &self,
        to: &Name,
        kind: MeasurementKind,
        open: Option<OpenSession>,
        hidden: &mut HiddenRates,
    ) -> (Result<LinkMeasurement, FailureCause>, Option<OpenSession>) {
        if self.prober.probe_budget().left() == ByteSize::ZERO {
            return (Err(FailureCause::Other), open);
        }
        let began = Instant::now();
        let mut open = match open {
            Some(open) => open,
            None => match self.open(to).await {
                Ok(open) => open,
                Err(why) => {
                    let failed = if why.is_unreachable() {
                        FailureCause::Unreachable
                    } else {
                        FailureCause::Other
                    };
                    self.log_result(to, kind, began, &Err(why), 0);
                    return (Err(failed), None);
                }
            },
        };
        let payer = self.payer(open.key);
        open.session.pay_by(payer.clone());
        let expected = hidden.get(to).copied().unwrap_or_default();
        let found = self.estimate(&mut open, kind, expected).await;
        let bytes = payer.spent();
        self.log_result(to, kind, began, &found, bytes);
        let Ok(found) = found else { return (Err(FailureCause::Other), None) };
        // Key frames come in bursts: the riders of the last trains may return in the next.
        hidden.insert(to.clone(), found.hidden.max(expected * HIDDEN_DECAY));
        let Finding { value, low, high, is_lower_bound, .. } = found;
        let to = to.clone();
        (
            Ok(LinkMeasurement { to, kind, value, low, high, is_lower_bound, began, bytes }),
            Some(open),
        )
    }

    async fn estimate(
        &self,
        open: &mut OpenSession,
        kind: MeasurementKind,
        hidden: f64,
    ) -> Result<Finding, ProbeError> {
        let mut ends = open.session.ends(Direction::There, open.largest);
        if let Some(most) = self.prober.max_rate() {
            ends.sender.honest = ends.sender.honest.min(most);
        }
        let rides = self.run.rides;
        let mut tool: Box<dyn Estimator + Send> = match kind {
            MeasurementKind::Range => Box::new(ends.pathload(self.run.pace, rides)),
            // The finding will exclude riders, so add the expected rate.
            MeasurementKind::Fits(rate) => Box::new(ends.rate_test(rate + hidden, rides)),
        };
        let outcome =
            run(&mut open.session, tool.as_mut(), Direction::There, LONGEST, &mut |_| {}).await?;
        let mut found = outcome.findings.into_iter();
        found.find(|f| f.of == Quantity::AvailableBandwidth).ok_or(ProbeError::Nothing)
    }

    fn log_result(
        &self,
        to: &Name,
        kind: MeasurementKind,
        began: Instant,
        found: &Result<Finding, ProbeError>,
        bytes: u64,
    ) {
        let event = Event::new("stream_measured").with("to", to).with_number("bytes", bytes);
        let event = event.with_number("ms", began.elapsed().as_millis());
        let event = match kind {
            MeasurementKind::Range => event,
            MeasurementKind::Fits(rate) => event.with_number("asked_bps", rate as u64),
        };
        self.log.put(match found {
            Ok(found) => event
                .with_number("low_bps", found.low as u64)
                .with_number("high_bps", found.high as u64)
                .with_number("hidden_bps", found.hidden as u64),
            Err(why) => event.with("why", why),
        });
    }
}

/// The next link in turn.
fn next_after(
    wanted: &MeasurementRequests,
    last: Option<&Name>,
) -> Option<(Name, MeasurementRequest)> {
    let next = wanted.iter().find(|(name, _)| last.is_none_or(|last| *name > last));
    let next = next.or_else(|| wanted.first_key_value());
    next.map(|(name, wanted)| (name.clone(), *wanted))
}

/// Waits until the link's streams are in another state than this one. A link that is no longer wanted stays in its
/// state.
async fn superseded(wanted: &mut watch::Receiver<MeasurementRequests>, to: &Name, state: u64) {
    let is_other = |requests: &MeasurementRequests| {
        requests.get(to).is_some_and(|wanted| wanted.state != state)
    };
    if wanted.wait_for(is_other).await.is_err() {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::spawn;

    #[test]
    fn links_are_measured_in_turn() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let range = MeasurementRequest { kind: MeasurementKind::Range, state: 0 };
        let wanted: MeasurementRequests = ["a", "b", "c"].map(|text| (name(text), range)).into();
        let next = |last: Option<&str>| next_after(&wanted, last.map(name).as_ref()).unwrap().0;
        assert_eq!([next(None), next(Some("b")), next(Some("c"))], ["a", "c", "a"].map(name));
        assert_eq!(next_after(&MeasurementRequests::new(), Some(&name("c"))), None);
    }

    #[tokio::test]
    async fn a_measurement_is_superseded_by_another_state_of_its_own_link() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let wanted = |a: u64, b: u64| -> MeasurementRequests {
            let range = |state| MeasurementRequest { kind: MeasurementKind::Range, state };
            [(name("a"), range(a)), (name("b"), range(b))].into()
        };
        let (requests, mut receiver) = watch::channel(wanted(1, 1));
        let mut waiting = spawn(async move { superseded(&mut receiver, &name("a"), 1).await });
        requests.send_replace(wanted(1, 2));
        requests.send_replace(MeasurementRequests::new());
        yield_now().await;
        assert!(!waiting.is_finished());
        requests.send_replace(wanted(2, 2));
        (&mut waiting).await.unwrap();
    }
}
