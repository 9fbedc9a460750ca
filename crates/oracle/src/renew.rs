//! What the oracle does by itself.

use crate::{
    Event, Oracle, OracleError,
    election::Standing,
    publish::{earlier, later},
};
use std::{future::Future, time::Duration};
use tokio::time::{MissedTickBehavior, interval};

/// How long an ended token is remembered, so that who comes late is told why.
const TOKENS_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long events are remembered: a year, and a bit.
const EVENTS_KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

impl Oracle {
    /// Renews the roster, takes over what other processes publish and has the mesh measured,
    /// until `shutdown`; then lets waiting requests go and closes the database.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = self.look_until(shutdown) => {}
            () = self.elections() => {}
            () = self.measuring() => {}
        }
        self.inner.stopping.send_replace(true);
        self.keep_last().await;
        self.step_down().await;
        self.inner.store.close().await;
    }

    /// A look that has begun goes on to its end: what is committed is published.
    async fn look_until(&self, shutdown: impl Future<Output = ()> + Send) {
        tokio::pin!(shutdown);
        let mut ticks = interval(self.inner.config.refresh);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                _ = ticks.tick() => self.tick_and_tell(&mut last).await,
            }
        }
    }

    /// Tells of a failure when it begins or changes, and not every second.
    async fn tick_and_tell(&self, last: &mut Option<String>) {
        let failure = self.tick().await.err().map(|error| error.to_string());
        if let Some(why) = failure.as_ref().filter(|why| last.as_ref() != Some(why)) {
            self.tell(&Event::Trouble(why.clone()));
        }
        *last = failure;
    }

    /// One look: takes over a newer roster of the database, and renews the roster if it is due.
    /// [`Oracle::run`] calls it every [`crate::Config::refresh`]. Of several oracles the
    /// elected one renews: clocks that differ would make them do so in turn without end.
    ///
    /// # Errors
    /// [`OracleError`]; the next look tries again.
    pub async fn tick(&self) -> Result<(), OracleError> {
        self.refresh().await?;
        let another = matches!(self.standing(), Standing::Another(_));
        if self.is_due() && !another { self.renew().await } else { Ok(()) }
    }

    /// Publishes anew, and forgets what is old.
    pub(crate) async fn renew(&self) -> Result<(), OracleError> {
        let mut write = self.begin().await?;
        let now = self.now();
        write.prune(earlier(now, TOKENS_KEPT), earlier(now, EVENTS_KEPT)).await?;
        self.publish(write).await.map(drop)
    }

    /// A third of the validity has passed; or our clock was ahead and was set back, so that
    /// members with right clocks do not take the roster.
    fn is_due(&self) -> bool {
        let newest = self.newest();
        let (now, validity) = (self.now(), self.inner.config.validity);
        let made = earlier(newest.roster.expiry, validity);
        let unfinished = self.inner.due.load(std::sync::atomic::Ordering::Relaxed);
        unfinished || now >= later(made, validity / 3) || now < newest.roster.not_before
    }
}
