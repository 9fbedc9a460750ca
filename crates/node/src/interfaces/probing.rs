//! When an interface is probed, and what it may cost.

use super::{
    Present, Uplinks,
    probe::{COST, ProbeServer, probe},
};
use crate::budget::{Budget, Purpose, Scope};
use std::{
    num::NonZeroU32,
    sync::OnceLock,
    time::{Duration, Instant},
};
use thalweg_net::Dialer;
use thalweg_units::ByteSize;
use tokio::time::sleep;

/// An interface of which nothing was heard for so long is probed, and not more often.
pub(super) const EVERY: Duration = Duration::from_secs(30 * 60);

/// Between looks whether there is one.
const LOOK: Duration = Duration::from_secs(1);

/// The budget's period.
const DAY: Duration = Duration::from_secs(86_400);

/// What interfaces are probed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probing {
    /// Files, of which each probe takes the next; none: nothing is probed.
    pub servers: Vec<ProbeServer>,
    /// The most that probes may cost in a day, over all interfaces.
    pub per_day: ByteSize,
}

impl Default for Probing {
    fn default() -> Self {
        Self { servers: Vec::new(), per_day: ByteSize::from_bytes(10_000_000) }
    }
}

/// Who probes, and the budget.
#[derive(Debug, Default)]
pub(super) struct Prober {
    dialer: OnceLock<Dialer>,
    budget: Budget,
}

impl Uplinks {
    /// Probes are made by this dialer; only the first one counts. Without one none are made.
    pub fn probe_by(&self, dialer: Dialer) {
        _ = self.prober().dialer.set(dialer);
    }

    /// What was spent on probes since the day began.
    pub fn spent_on_probes(&self) -> ByteSize {
        self.prober().budget.spent(Scope::purpose(Purpose::Probe))
    }

    /// Probes interfaces of which nothing is known; never ends.
    pub(super) async fn probe_again_and_again(&self) {
        let (mut day, mut next) = (Instant::now(), 0_usize);
        loop {
            sleep(LOOK).await;
            if day.elapsed() >= DAY {
                day = Instant::now();
                self.prober().budget.renew(Scope::purpose(Purpose::Probe));
            }
            let Some(dialer) = self.prober().dialer.get() else { continue };
            if let Some((interface, server)) = self.due(next) {
                next = next.wrapping_add(1);
                self.probe_one(dialer, &interface, &server).await;
            }
        }
    }

    /// An interface to be probed, and with what, if that is within the budget; it is taken from it.
    fn due(&self, turn: usize) -> Option<(Present, ProbeServer)> {
        let (now, today) = (self.now(), self.today());
        let mut table = self.table();
        let Probing { servers, per_day } = &table.settings().probing;
        let server = servers.get(turn % servers.len().max(1))?.clone();
        let all = Scope::purpose(Purpose::Probe);
        self.prober().budget.set_limit(all, Some(*per_day));
        let interface = table.unknown(now, today)?;
        let scope = Scope { interface: NonZeroU32::new(interface.index), ..all };
        self.prober().budget.try_spend(scope, COST).ok()?;
        table.is_probed(&interface.name, now);
        Some((interface, server))
    }

    async fn probe_one(&self, dialer: &Dialer, interface: &Present, server: &ProbeServer) {
        let Some(index) = NonZeroU32::new(interface.index) else { return };
        if self.may(&interface.name).await.is_err() {
            return;
        }
        let told = probe(dialer, index, server).await;
        let moved = told.as_ref().map_or(0, |probed| probed.bytes);
        self.link_moved(&interface.name, moved);
        let told = told.map_err(|why| why.to_string());
        self.table().probed(interface, told, self.now());
    }
}
