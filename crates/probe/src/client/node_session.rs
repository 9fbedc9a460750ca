//! Sends a tool's trains through the local node, so that packets of the host's programs ride in them.

use super::{ProbeServiceClient, TrainOrder};
use crate::trains::{
    Direction, SessionError, TrainSender,
    messages::{Opened, Report},
};
use std::time::Duration;
use thalweg_measure::estimators::Ends;
use thalweg_measure::train::{Calibration, Doubt, End, Flight, Probe, Train};
use tokio::task::block_in_place;

/// How many probes of a size are sent to see whether any passes.
const SHOWN: usize = 5;

/// A connection to the node's probe service, with a session to one member.
pub struct NodeSession {
    service: ProbeServiceClient,
    opened: Opened,
    accepts_busy: bool,
    rides: bool,
    is_gone: bool,
}

impl NodeSession {
    /// Opens a session through this service. `accepts_busy`: trains are sent although a host is too busy to time them,
    /// and the results are then in doubt.
    ///
    /// # Errors
    /// The service's: it is gone, or the member cannot be reached.
    pub fn open(mut service: ProbeServiceClient, accepts_busy: bool) -> anyhow::Result<Self> {
        let opened = service.open()?;
        Ok(Self { service, opened, accepts_busy, rides: true, is_gone: false })
    }

    /// The same for trains without riders, which are not announced.
    #[must_use]
    pub fn without_riders(self) -> Self {
        Self { rides: false, ..self }
    }

    /// Whether the node no longer answers, and the connection is of no more use.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The connection, for trains that belong to no tool.
    pub fn service(&mut self) -> &mut ProbeServiceClient {
        &mut self.service
    }

    /// The path as tools need it.
    pub fn ends(&self) -> Ends {
        let [sender, receiver] = self.hosts();
        let Opened { largest, overhead, .. } = self.opened;
        Ends { sender, receiver, rtt: self.opened.rtt(), largest, overhead }
    }

    /// The calibrations of this host and the member's, against which trains are checked.
    fn hosts(&self) -> [Calibration; 2] {
        let judged =
            |host: Calibration| if self.accepts_busy { host.accepting_busy() } else { host };
        self.opened.calibrations().map(judged)
    }

    /// Checks that a probe of this size passes.
    ///
    /// # Errors
    /// [`SessionError::Mtu`] if it does not; else the train's.
    pub async fn passes(&mut self, size: u16) -> Result<(), SessionError> {
        let probe = Probe { size, header: 0, gap: Duration::ZERO, may_carry: false };
        let train =
            Train::uniform(probe, SHOWN).map_err(|why| SessionError::Node(why.to_string()))?;
        let train = train.with_overhead(self.opened.overhead);
        let flight = self.send_train(&train, Direction::There, Duration::ZERO).await?;
        let overhead = self.opened.overhead;
        flight.arrived_probes().next().map(drop).ok_or(SessionError::Mtu { size, overhead })
    }

    /// Sends one train after this pause. Returns the node's whole report.
    ///
    /// # Errors
    /// This host cannot send it truthfully, the node refuses to send it, or the node is gone.
    pub fn send_and_report(
        &mut self,
        train: &Train,
        after: Duration,
    ) -> Result<Report, SessionError> {
        self.hosts()[0].check(train)?;
        let order =
            TrainOrder { train, after, header: &[], awaits: true, accepts_busy: self.accepts_busy };
        // Meanwhile the program waits for nothing else but Ctrl-C.
        let told = block_in_place(|| self.service.send(&order));
        let told = told.map_err(|gone| {
            self.is_gone = true;
            SessionError::Node(format!("{gone:#}"))
        })?;
        told.map_err(SessionError::Node)
    }
}

impl TrainSender for NodeSession {
    async fn send_train(
        &mut self,
        train: &Train,
        _way: Direction,
        after: Duration,
    ) -> Result<Flight, SessionError> {
        Ok(self.send_and_report(train, after)?.flight())
    }

    fn rides(&self, way: Direction) -> bool {
        self.rides && way == Direction::There
    }

    fn doubts(&self, _way: Direction) -> Vec<Doubt> {
        let hosts = [End::Sender, End::Receiver].into_iter().zip(self.opened.calibrations());
        hosts.filter_map(|(end, host)| Doubt::of_host(end, &host)).collect()
    }
}
