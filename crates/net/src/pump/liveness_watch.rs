//! Periodic checks of the kernel's counters of both legs.

use super::{
    super::{
        legs::LegWatcher,
        liveness::{LegSample, Liveness},
    },
    Stopped, Terms,
};
use crate::TcpInfo;
use std::time::{Duration, Instant};
use tokio::{
    net::TcpStream,
    time::{Interval, MissedTickBehavior, interval, sleep},
};

/// Watches the liveness of one connection.
pub struct LivenessWatch<'a> {
    liveness: Liveness,
    ticks: Interval,
    watcher: Option<&'a dyn LegWatcher>,
}

/// The state of the pump that the kernel's counters do not show.
#[derive(Clone, Copy, Debug)]
pub struct PumpState {
    /// One direction has ended.
    pub half_closed: bool,
    /// The pump itself delays a direction because of a quota.
    pub throttled: bool,
}

impl<'a> LivenessWatch<'a> {
    /// Starts the watch of a new connection.
    pub fn new(terms: Terms<'a>) -> Self {
        let liveness = Liveness::new(terms.limits, Instant::now());
        let mut ticks = interval(liveness.interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { liveness, ticks, watcher: terms.watcher }
    }

    /// Waits until it is time for [`LivenessWatch::check`]. Cancel-safe.
    pub async fn tick(&mut self) {
        self.ticks.tick().await;
    }

    /// Checks both legs once.
    ///
    /// # Errors
    /// [`Stopped::GivenUp`].
    pub fn check(
        &mut self,
        client: Option<&TcpStream>,
        destination: Option<&TcpStream>,
        holding: PumpState,
    ) -> Result<(), Stopped> {
        let (client, destination) = self.look(client, destination)?;
        let now = Instant::now();
        if holding.throttled {
            self.liveness.excuse(now);
        }
        match self.liveness.check(&client, &destination, holding.half_closed, now) {
            Some(verdict) => Err(Stopped::GivenUp(verdict)),
            None => Ok(()),
        }
    }

    /// After both directions have ended, waits until both peers have acknowledged the last byte.
    ///
    /// If the socket were closed earlier, the kernel would drop it after some unanswered window probes, and with it the
    /// data that a slow reader has not read.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn delivered(
        &mut self,
        client: Option<&TcpStream>,
        destination: Option<&TcpStream>,
    ) -> Result<(), Stopped> {
        let holding = PumpState { half_closed: true, throttled: false };
        // The round-trip time is not known here, so the checks begin soon and become rarer.
        let mut pause = Duration::from_millis(2);
        loop {
            let (one, other) = self.look(client, destination)?;
            if !(one.queued || other.queued) {
                return Ok(());
            }
            self.check(client, destination, holding)?;
            sleep(pause).await;
            pause = (pause * 2).min(self.liveness.interval());
        }
    }

    fn look(
        &self,
        client: Option<&TcpStream>,
        destination: Option<&TcpStream>,
    ) -> Result<(LegSample, LegSample), Stopped> {
        let (client, destination) =
            (client.map(info).transpose()?, destination.map(info).transpose()?);
        if let (Some(watcher), Some(client), Some(destination)) =
            (self.watcher, &client, &destination)
        {
            watcher.record_counters(client, destination);
        }
        // A leg without counters is treated as resting; the other leg shows progress.
        let leg = |info: Option<TcpInfo>| info.map(LegSample::from).unwrap_or_default();
        Ok((leg(client), leg(destination)))
    }
}

/// Reads the counters, which include the send queue. It also reports a reset that no read would report, because that
/// direction has ended.
fn info(tcp: &TcpStream) -> Result<TcpInfo, Stopped> {
    if let Some(error) = tcp.take_error().map_err(Stopped::Broken)? {
        return Err(Stopped::Broken(error));
    }
    TcpInfo::of(tcp).map_err(Stopped::Broken)
}
