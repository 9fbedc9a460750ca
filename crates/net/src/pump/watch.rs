//! The pump's looks at the kernel's counters of both legs.

use super::{
    super::{
        legs::LegWatcher,
        liveness::{Leg, Liveness},
    },
    Stopped, Terms,
};
use crate::TcpInfo;
use std::time::{Duration, Instant};
use tokio::{
    net::TcpStream,
    time::{Interval, MissedTickBehavior, interval, sleep},
};

/// Watches over the liveness of one connection.
pub struct Watch<'a> {
    liveness: Liveness,
    ticks: Interval,
    watcher: Option<&'a dyn LegWatcher>,
}

/// What the kernel's counters do not tell.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    /// One direction has ended.
    pub half_closed: bool,
    /// The pump itself holds a direction back, for a quota.
    pub throttled: bool,
}

impl<'a> Watch<'a> {
    /// For a connection that is made now.
    pub fn new(terms: Terms<'a>) -> Self {
        let liveness = Liveness::new(terms.limits, Instant::now());
        let mut ticks = interval(liveness.interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { liveness, ticks, watcher: terms.watcher }
    }

    /// Waits until it is time for [`Watch::check`]. Cancel-safe.
    pub async fn tick(&mut self) {
        self.ticks.tick().await;
    }

    /// One look at both legs.
    ///
    /// # Errors
    /// [`Stopped::GivenUp`].
    pub fn check(
        &mut self,
        client: Option<&TcpStream>,
        destination: Option<&TcpStream>,
        holding: Holding,
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

    /// Waits until both peers have acknowledged the last byte, when both directions have ended.
    ///
    /// A socket that is closed before would be dropped by the kernel after some
    /// unanswered window probes, and a slow reader's data with it.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn delivered(
        &mut self,
        client: Option<&TcpStream>,
        destination: Option<&TcpStream>,
    ) -> Result<(), Stopped> {
        let holding = Holding { half_closed: true, throttled: false };
        // A round trip is not known to us yet: look soon, then ever more rarely.
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
    ) -> Result<(Leg, Leg), Stopped> {
        let (client, destination) =
            (client.map(info).transpose()?, destination.map(info).transpose()?);
        if let (Some(watcher), Some(client), Some(destination)) =
            (self.watcher, &client, &destination)
        {
            watcher.saw(client, destination);
        }
        // A leg without counters is as one that rests: the other one shows what moves.
        let leg = |info: Option<TcpInfo>| info.map(Leg::from).unwrap_or_default();
        Ok((leg(client), leg(destination)))
    }
}

/// Whether anything still waits in a send queue is the kernel's word, and so is a reset
/// that no read will tell of any more, since that direction has ended.
fn info(tcp: &TcpStream) -> Result<TcpInfo, Stopped> {
    if let Some(error) = tcp.take_error().map_err(Stopped::Broken)? {
        return Err(Stopped::Broken(error));
    }
    TcpInfo::of(tcp).map_err(Stopped::Broken)
}
