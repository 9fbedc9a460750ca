//! The measurement overlay (MGRP §3.2): this node measures the links that it uses, and a sample of the others, with
//! probe trains, and reports the results to the oracle.
//!
//! ```text
//! legs of transfers, carrier ── what travels ──→ Links ──→ overlay::next_measurement ─────── which link, and how
//! oracle ←── outbox of the prober ←── range, age ←── trains::run, over a session ←──────┘
//! ```
//!
//! It measures one link at a time. A host sends one train at a time, and none beside a bulk flow. The bytes of trains are
//! charged to the budget of [`crate::prober`]; the overlay may use a part of it. Nothing is measured while a host is too
//! busy to time probes. The overlay does not choose links that decide the oracle's ranking: the oracle orders bulk flows
//! for them itself.

mod counts;
mod link_measurer;
mod links;
mod overlay_budget;
mod probe;

pub use counts::OverlayCounts;
pub use link_measurer::{
    LinkMeasurement, LinkMeasurer, LinkMeasurerSettings, LinkNews, MeasurementKind,
    MeasurementRequest, MeasurementRequests,
};

use crate::{
    prober::Prober,
    trains::{Payer, Trains},
};
use counts::MeasurementOutcome;
use links::Links;
use overlay_budget::OverlayBudget;
use probe::{ProbeError, ProbeTask, probe};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use thalweg_base::log::{Event, Log};
use thalweg_measure::{
    Bound,
    estimators::Finding,
    overlay::{LinkEstimate, LinkMethod, NextMeasurement, OverlaySettings, next_measurement},
};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::{Member, Name};
use tokio::time::{Instant, sleep};

/// Settings of the overlay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverlayRunSettings {
    /// When results are too old.
    pub core: OverlaySettings,
    /// The share of the prober's bytes of a day, from 0 to 1.
    pub share: f64,
    /// The pause between two checks for a link to measure; a random part of at most the same length is added.
    pub pause: Duration,
    /// The pause after a host was too busy to time probes.
    pub busy: Duration,
    /// The longest time of a measurement.
    pub longest: Duration,
    /// Whether results count although a host was too busy to time probes; for tests.
    pub accepts_busy: bool,
}

impl Default for OverlayRunSettings {
    /// The share is a quarter, because the oracle's orders come first. The pauses are five seconds and a minute,
    /// because the calibration of a busy host takes 1.5 s of a thread. A measurement takes at most a minute, as in
    /// `thalweg measure`.
    fn default() -> Self {
        let (pause, minute) = (Duration::from_secs(5), Duration::from_secs(60));
        let (busy, longest, core) = (minute, minute, OverlaySettings::default());
        Self { core, share: 0.25, pause, busy, longest, accepts_busy: false }
    }
}

/// The measurement overlay of a node. Cheap to clone; run it once.
#[derive(Clone, Debug)]
pub struct Overlay {
    run: OverlayRunSettings,
    prober: Prober,
    trains: Trains,
    dialer: MemberDialer,
    overlay_budget: Arc<OverlayBudget>,
    counts: OverlayCounts,
    log: Log,
}

impl Overlay {
    /// Creates an overlay that measures with `trains`, and charges and reports through `prober`.
    pub fn new(
        run: OverlayRunSettings,
        prober: Prober,
        trains: Trains,
        dialer: MemberDialer,
        log: Log,
    ) -> Self {
        let overlay_budget = Arc::new(OverlayBudget::new(prober.probe_budget(), run.share));
        let counts = OverlayCounts::default();
        prober.register_overlay(counts.clone());
        Self { run, prober, trains, dialer, overlay_budget, counts, log }
    }

    pub fn counts(&self) -> OverlayCounts {
        self.counts.clone()
    }

    /// Measures for ever; the endpoints must be running. Drop the future to stop it.
    pub async fn run(self) {
        let (mut links, mut sent) = (Links::default(), BTreeMap::new());
        let mut transfers = self.prober.transfers();
        loop {
            sleep(self.spread()).await;
            let now = Instant::now();
            // Results lost by falling behind would be out of date by now.
            while let Ok(seen) = transfers.try_recv() {
                let bound = if seen.at_least { Bound::AtLeast } else { Bound::Exact };
                let (low, high, how, age) = (seen.bps, seen.bps, LinkMethod::Passive, seen.age);
                links.set_result(&seen.to, LinkEstimate { low, high, bound, how, age }, now);
            }
            for (to, bytes) in self.prober.take_moved_bytes() {
                links.add_use(&to, bytes, 0, now);
            }
            for (to, bytes) in self.trains.carried() {
                let last = sent.insert(to.clone(), bytes).unwrap_or(0);
                // The member's counter has been reset: all its bytes are new.
                let more = bytes.checked_sub(last).unwrap_or(bytes);
                links.add_use(&to, more, more, now);
            }
            self.measure_next(&mut links, now).await;
        }
    }

    /// The pause and a random part, so that nodes started together do not measure at the same moments.
    fn spread(&self) -> Duration {
        let mut random = [0];
        // Without randomness the pause is the shortest.
        _ = getrandom::fill(&mut random);
        self.run.pause.mul_f64(1.0 + f64::from(random[0]) / 256.0)
    }

    /// Measures the link that is most worth it now, if any is.
    async fn measure_next(&self, links: &mut Links, now: Instant) {
        let members = self.members();
        let asked = links.candidates(self.dialer.me(), &members, now);
        let all: Vec<_> = asked.iter().map(|(_, link)| *link).collect();
        let Some(order) = next_measurement(&all, self.overlay_budget.left(), &self.run.core) else {
            return;
        };
        let Some((to, _)) = asked.get(order.link) else { return };
        if !self.is_calm().await {
            self.counts.count(MeasurementOutcome::Busy, 0);
            return sleep(self.run.busy).await;
        }
        let Some(payer) = self.payer(to, order.most) else { return };
        let task = ProbeTask {
            to,
            how: order.how,
            longest: self.run.longest,
            accepts_busy: self.run.accepts_busy,
            most: self.prober.max_rate(),
            payer,
        };
        let (found, bytes) = probe(&self.dialer, &self.trains, task).await;
        self.overlay_budget.spend(bytes);
        let ended = MeasurementOutcome::of(&found);
        self.counts.count(ended, bytes);
        self.log_result(to, &order, &found, ended, bytes);
        links.set_cost(to, order.how, bytes);
        let now = Instant::now();
        match found {
            Ok(found) => {
                links.set_result(to, known(&found, order.how), now);
                self.prober.report_probe(to.clone(), &found, bytes);
            }
            Err(_) => links.rest_after_failure(to, now),
        }
    }

    /// Other members that run a node and have an address in the roster.
    fn members(&self) -> Vec<Name> {
        let Ok(roster) = self.dialer.roster() else { return Vec::new() };
        let has_node = |member: &&Member| member.node.is_some() && member.is_dialled();
        roster.members.iter().filter(has_node).map(|member| member.name.clone()).collect()
    }

    async fn is_calm(&self) -> bool {
        let found = self.trains.calibrated().await;
        found.is_ok_and(|host| host.is_valid || self.run.accepts_busy)
    }

    fn payer(&self, to: &Name, most: ByteSize) -> Option<Payer> {
        let key = self.dialer.roster().ok()?.by_name(to)?.node?;
        Some(Payer::new(self.trains.clone(), key, self.prober.lane()).at_most(most))
    }

    fn log_result(
        &self,
        to: &Name,
        order: &NextMeasurement,
        found: &Result<Finding, ProbeError>,
        ended: MeasurementOutcome,
        bytes: u64,
    ) {
        let event =
            Event::new("overlay").with("to", to).with("how", format_args!("{:?}", order.how));
        let event = event.with("outcome", ended.label()).with_number("bytes", bytes);
        self.log.put(match found {
            Ok(found) => event
                .with_number("low_bps", found.low as u64)
                .with_number("high_bps", found.high as u64),
            Err(why) => event.with("why", why),
        });
    }
}

impl MeasurementOutcome {
    fn of(found: &Result<Finding, ProbeError>) -> Self {
        match found {
            Ok(found) if found.is_lower_bound => Self::AtLeast,
            Ok(_) => Self::Measured,
            Err(ProbeError::Busy(_)) => Self::Busy,
            Err(ProbeError::Doubtful(_)) => Self::Doubtful,
            Err(_) => Self::Failed,
        }
    }
}

fn known(found: &Finding, how: LinkMethod) -> LinkEstimate {
    let bound = if found.is_lower_bound { Bound::AtLeast } else { Bound::Exact };
    LinkEstimate { low: found.low, high: found.high, bound, how, age: Duration::ZERO }
}
