//! When an interface is probed, and what it may cost.

use super::{
    Accounts, Present, Uplinks,
    kept::Kept,
    probe::{COST, ProbeServer, probe},
};
use std::{
    io,
    num::NonZeroU32,
    sync::{Arc, OnceLock},
    time::Duration,
};
use thalweg_base::budget::Purpose;
use thalweg_bond::Period;
use thalweg_net::Dialer;
use thalweg_units::ByteSize;
use tokio::{task::spawn_blocking, time::sleep};

/// An interface of which nothing was heard for so long is probed, and not more often.
pub(super) const EVERY: Duration = Duration::from_secs(30 * 60);

/// Between looks whether there is one.
const LOOK: Duration = Duration::from_secs(1);

/// What interfaces are probed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probing {
    /// Files, of which each probe takes the next; none: nothing is probed.
    pub servers: Vec<ProbeServer>,
    /// The most that probes may cost in a day (UTC), over all interfaces and processes.
    pub per_day: ByteSize,
}

impl Default for Probing {
    fn default() -> Self {
        Self { servers: Vec::new(), per_day: ByteSize::from_bytes(10_000_000) }
    }
}

/// Who probes. What this process spends is in its budget; the day's limit is kept with what all spent.
#[derive(Debug, Default)]
pub(super) struct Prober {
    dialer: OnceLock<Dialer>,
}

impl Uplinks {
    /// Probes are made by this dialer; only the first one counts. Without one none are made.
    pub fn probe_by(&self, dialer: Dialer) {
        _ = self.prober().dialer.set(dialer);
    }

    /// What all processes spent on probes today.
    pub fn spent_on_probes(&self) -> ByteSize {
        let today = self.day();
        ByteSize::from_bytes(self.table().kept().spent_on_probes(today))
    }

    fn day(&self) -> u32 {
        Period::at(self.today(), 1).today
    }

    /// Probes interfaces of which nothing is known; never ends.
    pub(super) async fn probe_again_and_again(&self) {
        let mut next = 0_usize;
        loop {
            sleep(LOOK).await;
            let Some(dialer) = self.prober().dialer.get() else { continue };
            let Some((interface, server)) = self.due(next) else { continue };
            next = next.wrapping_add(1);
            if self.pays_for(&interface).await
                && let Some(false) = self.probe_one(dialer, &interface, &server).await
            {
                self.ask_again_elsewhere(dialer, &interface, &server).await;
            }
        }
    }

    /// An interface to be probed, and with what.
    fn due(&self, turn: usize) -> Option<(Present, ProbeServer)> {
        let (now, today) = (self.now(), self.today());
        let mut table = self.table();
        let servers = &table.settings().probing.servers;
        let server = servers.get(turn % servers.len().max(1))?.clone();
        let interface = table.unknown(now, today)?;
        table.is_probed(&interface.name, now);
        Some((interface, server))
    }

    /// Takes what a probe costs from the day's budget, which all processes share; where that leaves it not, the
    /// interface's status says so.
    async fn pays_for(&self, interface: &Present) -> bool {
        let (today, most) = (self.day(), self.table().settings().probing.per_day.as_bytes());
        let cost = (COST.as_bytes(), most);
        let paid = match self.0.file.clone() {
            None => Ok(self.table().pay_for_probe(today, cost)),
            Some(file) => {
                let paying = spawn_blocking(move || Kept::pay_for_probe_in(&file, today, cost));
                let paid = paying.await.unwrap_or_else(|why| Err(io::Error::other(why)));
                paid.map(|(kept, is_paid)| {
                    self.table().renew(kept);
                    is_paid
                })
            }
        };
        let why = match paid {
            Ok(true) => {
                if let Some(index) = NonZeroU32::new(interface.index) {
                    self.spend_on(Purpose::Probe, index, COST);
                }
                return true;
            }
            Ok(false) => "the budget of this day is used up".to_owned(),
            Err(why) => self.unsaved(&why),
        };
        self.table().probed(
            interface,
            Err(format!("not probed: {why}")),
            (self.now(), self.today()),
        );
        false
    }

    /// A probe failed: the interface is left out if the server answers by another one, or another server does not answer
    /// either. What fails by all is the server's fault.
    async fn ask_again_elsewhere(&self, dialer: &Dialer, failed: &Present, server: &ProbeServer) {
        let (now, today) = (self.now(), self.today());
        let (by, at) = {
            let mut table = self.table();
            let servers = &table.settings().probing.servers;
            let Some((by, at)) = table.witness(failed, server, servers, today) else { return };
            table.is_probed(&by.name, now);
            (by, at)
        };
        if !self.pays_for(&by).await {
            return;
        }
        let answers = self.probe_one(dialer, &by, &at).await;
        if answers.is_some_and(|answers| answers == (by != *failed)) {
            self.table().is_to_blame(failed, self.now());
        }
    }

    /// Whether it was answered; `None`: it could not be sent.
    async fn probe_one(
        &self,
        dialer: &Dialer,
        interface: &Present,
        server: &ProbeServer,
    ) -> Option<bool> {
        let index = NonZeroU32::new(interface.index)?;
        self.may(&interface.name).await.ok()?;
        // Counted as the kernel counts it, whatever comes of it.
        let dialer = dialer.clone().booked_by(Arc::new(Accounts::new(self.clone())));
        let told = probe(&dialer, index, server).await.map_err(|why| why.to_string());
        let is_answered = told.is_ok();
        self.table().probed(interface, told, (self.now(), self.today()));
        Some(is_answered)
    }
}
