//! Collects the facts from which the bound of a cast is found ([`thalweg_paths::verdict`]).
//!
//! Those of receivers are in its events: [`FactCollector`] passes them on, remembers, and adds the verdict before the end.

use super::event::{Event, EventSink, Outcome, PlannedReceiver, Totals};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use thalweg_base::verdict::Verdict;
use thalweg_paths::{
    transfer_counters::{WatchedConnections, WatchedInterfaces, Way},
    verdict::{CastFacts, CastReceiver, cast_verdict},
};
use thalweg_units::Rate;
use thalweg_wire::mesh::Name;

/// The source's legs, by the receiver at their other end.
pub type Legs = WatchedConnections<Name>;

/// Passes the events of one cast on, and remembers facts.
pub struct FactCollector {
    to: Arc<dyn EventSink>,
    me: Name,
    legs: Arc<Legs>,
    seen: Mutex<Seen>,
}

struct Seen {
    planned: Vec<PlannedReceiver>,
    receivers: Vec<CastReceiver>,
    interfaces: WatchedInterfaces,
}

impl FactCollector {
    /// Creates the collector of a cast from the host `me`.
    pub fn new(to: Arc<dyn EventSink>, me: Name) -> Self {
        let (planned, receivers) = Default::default();
        let interfaces = WatchedInterfaces::begin(Way::Up);
        let seen = Mutex::new(Seen { planned, receivers, interfaces });
        Self { to, me, legs: Arc::default(), seen }
    }

    /// The legs whose counters are read.
    pub fn legs(&self) -> Arc<Legs> {
        Arc::clone(&self.legs)
    }

    fn verdict(&self, totals: &Totals) -> Verdict {
        let seen = self.seen.lock();
        let leg = |child: Name| Some((child.to_string(), self.legs.sent(&child)?));
        cast_verdict(&CastFacts {
            took: seconds(totals.seconds),
            receivers: seen.receivers.clone(),
            legs: self.legs.paths().into_iter().filter_map(leg).collect(),
            peak: seen.interfaces.facts(totals.served_bytes).and_then(|facts| facts.peak),
        })
    }

    fn note(&self, event: &Event) {
        let mut seen = self.seen.lock();
        match event {
            Event::Planned { receivers } => seen.planned.clone_from(receivers),
            Event::Progress { .. } => seen.interfaces.look(),
            Event::Received {
                receiver,
                already: false,
                received_bytes,
                duplicate_bytes,
                parents,
                rate_bps,
                after_seconds,
                ..
            } => {
                let parent = |name: &Name| {
                    if *name == self.me { String::new() } else { name.to_string() }
                };
                let planned = seen.planned.iter().find(|planned| planned.name == *receiver);
                let known = planned.and_then(|planned| planned.min_hop_bps).map(Rate::from_bps);
                let received = CastReceiver {
                    name: receiver.to_string(),
                    ended: seconds(*after_seconds),
                    bytes: received_bytes.saturating_sub(*duplicate_bytes),
                    rate: Rate::from_bps(*rate_bps),
                    parents: parents.iter().map(|from| (parent(&from.name), from.bytes)).collect(),
                    known,
                };
                seen.receivers.push(received);
            }
            _ => {}
        }
    }
}

impl EventSink for FactCollector {
    fn event(&self, event: &Event) {
        self.note(event);
        if matches!(event, Event::Progress { .. }) {
            self.legs.look();
        }
        if let Event::Ended(totals) = event
            && matches!(totals.outcome, Outcome::Complete | Outcome::Partial)
        {
            self.to.event(&Event::Verdict(self.verdict(totals)));
        }
        self.to.event(event);
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
