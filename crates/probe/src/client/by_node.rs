//! A tool's trains, which the host's node sends, so that what its programs send to the member rides in them.

use super::{Order, Service};
use crate::trains::{
    Flies, SessionError, Way,
    words::{Opened, Report},
};
use std::time::Duration;
use thalweg_measure::estimators::Ends;
use thalweg_measure::train::{Calibration, Doubt, End, Flight, Probe, Train};
use tokio::task::block_in_place;

/// So many probes show whether any of a size passes.
const SHOWN: usize = 5;

/// A connection to the node's probe service, with a session to one member.
pub struct ByNode {
    service: Service,
    opened: Opened,
    accepts_busy: bool,
    rides: bool,
    is_gone: bool,
}

impl ByNode {
    /// By this service. `accepts_busy`: trains go although a host is too busy to time them, and results are doubted then.
    ///
    /// # Errors
    /// The service's: it is gone, or the member is not reached.
    pub fn open(mut service: Service, accepts_busy: bool) -> anyhow::Result<Self> {
        let opened = service.open()?;
        Ok(Self { service, opened, accepts_busy, rides: true, is_gone: false })
    }

    /// The same where nothing is to ride: trains are not said ahead.
    #[must_use]
    pub fn without_riders(self) -> Self {
        Self { rides: false, ..self }
    }

    /// Whether the node no longer answers: nothing more will come of this connection.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The connection, for trains that are no tool's.
    pub fn service(&mut self) -> &mut Service {
        &mut self.service
    }

    /// The path, as tools are told of it.
    pub fn ends(&self) -> Ends {
        let [sender, receiver] = self.hosts();
        let Opened { largest, overhead, .. } = self.opened;
        Ends { sender, receiver, rtt: self.opened.rtt(), largest, overhead }
    }

    /// What this host and the member's can do, as trains are held against it.
    fn hosts(&self) -> [Calibration; 2] {
        let judged = |host: Calibration| if self.accepts_busy { host.as_it_is() } else { host };
        self.opened.calibrations().map(judged)
    }

    /// That a probe of this size passes.
    ///
    /// # Errors
    /// [`SessionError::Mtu`]: it does not; else the train's.
    pub async fn passes(&mut self, size: u16) -> Result<(), SessionError> {
        let probe = Probe { size, header: 0, gap: Duration::ZERO, may_carry: false };
        let train =
            Train::uniform(probe, SHOWN).map_err(|why| SessionError::Node(why.to_string()))?;
        let train = train.over(self.opened.overhead);
        let flight = self.fly(&train, Way::There, Duration::ZERO).await?;
        let overhead = self.opened.overhead;
        flight.passed().next().map(drop).ok_or(SessionError::Mtu { size, overhead })
    }

    /// One train, after this pause, with all that the node says of it.
    ///
    /// # Errors
    /// This host cannot send it truthfully; the node does not send it, or is gone.
    pub fn told(&mut self, train: &Train, after: Duration) -> Result<Report, SessionError> {
        self.hosts()[0].check(train)?;
        let order =
            Order { train, after, header: &[], awaits: true, accepts_busy: self.accepts_busy };
        // Beside it nothing but Ctrl-C is waited for.
        let told = block_in_place(|| self.service.send(&order));
        let told = told.map_err(|gone| {
            self.is_gone = true;
            SessionError::Node(format!("{gone:#}"))
        })?;
        told.map_err(SessionError::Node)
    }
}

impl Flies for ByNode {
    async fn fly(
        &mut self,
        train: &Train,
        _way: Way,
        after: Duration,
    ) -> Result<Flight, SessionError> {
        Ok(self.told(train, after)?.flight())
    }

    fn rides(&self, way: Way) -> bool {
        self.rides && way == Way::There
    }

    fn doubts(&self, _way: Way) -> Vec<Doubt> {
        let hosts = [End::Sender, End::Receiver].into_iter().zip(self.opened.calibrations());
        hosts.filter_map(|(end, host)| Doubt::of_host(end, &host)).collect()
    }
}
