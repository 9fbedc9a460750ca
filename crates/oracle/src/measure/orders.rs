//! Orders from the moment they are given until both ends have reported.

use super::{estimate_table::Leg, nodes::Slot};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use thalweg_units::Time;
use tokio::sync::Notify;

/// The most ended orders to remember, which tell a second report from an unknown order. Beyond that the oldest, which
/// has the lowest number, is forgotten.
const ENDED: usize = 10_000;

/// One end's report of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Claim {
    pub bps: f64,
    pub spread: Option<f64>,
    pub bytes: u64,
    /// Whether the leg may be faster.
    pub at_least: bool,
    /// When the measurement ended.
    pub at: Time,
}

/// An order that has not ended.
#[derive(Clone, Debug)]
pub(super) struct PendingOrder {
    pub id: u64,
    pub leg: Leg,
    pub given: Time,
    pub until: Time,
    pub sender: Option<Claim>,
    pub receiver: Option<Claim>,
    /// The bytes that each end has been charged so far.
    pub charged: u64,
    /// Since when only the other end's report is missing.
    pub closed: Option<Time>,
}

impl PendingOrder {
    /// The date for an age, but not before the order, whatever the reporter's clock says.
    pub fn date(&self, age: Duration, now: Time) -> Time {
        (now - age).max(self.given)
    }

    fn is_settled(&self, now: Time, settle: Duration) -> bool {
        let both = self.sender.is_some() && self.receiver.is_some();
        both || self.closed.is_some_and(|since| now.since(since) >= settle)
    }
}

/// All orders.
#[derive(Debug, Default)]
pub(super) struct Orders {
    under: BTreeMap<u64, PendingOrder>,
    ended: BTreeSet<u64>,
    /// Orders not fetched yet, by sender.
    mail: BTreeMap<Slot, Vec<u64>>,
    wakes: HashMap<Slot, Arc<Notify>>,
}

impl Orders {
    /// Stores an order for its sender, and wakes the sender's poll.
    pub fn give(&mut self, id: u64, leg: Leg, now: Time, until: Time) {
        let (sender, receiver, closed) = (None, None, None);
        let under =
            PendingOrder { id, leg, given: now, until, sender, receiver, charged: 0, closed };
        self.under.insert(id, under);
        self.mail.entry(leg.0).or_default().push(id);
        self.wakes.iter().filter(|(slot, _)| **slot == leg.0).for_each(|(_, wake)| {
            wake.notify_one();
        });
    }

    /// The notifier of this member's poll.
    pub fn wake(&mut self, slot: Slot) -> Arc<Notify> {
        self.wakes.entry(slot).or_default().clone()
    }

    /// Takes out the orders that wait for this sender.
    pub fn fetch(&mut self, slot: Slot, now: Time) -> Vec<PendingOrder> {
        let ids = self.mail.remove(&slot).unwrap_or_default();
        let orders = ids.iter().filter_map(|id| self.under.get(id));
        orders.filter(|order| order.until > now).cloned().collect()
    }

    /// The order, unless it has ended.
    pub fn get(&mut self, id: u64) -> Option<&mut PendingOrder> {
        self.under.get_mut(&id)
    }

    /// Whether such an order ended recently.
    pub fn has_ended(&self, id: u64) -> bool {
        self.ended.contains(&id)
    }

    /// Marks that only the other end's report is awaited from now on.
    pub fn close(&mut self, id: u64, now: Time) {
        if let Some(order) = self.under.get_mut(&id) {
            order.closed.get_or_insert(now);
        }
        self.mail.values_mut().for_each(|ids| ids.retain(|other| *other != id));
    }

    /// Ends an order that has no result.
    pub fn drop(&mut self, id: u64) -> Option<PendingOrder> {
        self.close(id, Time::ZERO);
        self.end(id)
    }

    fn end(&mut self, id: u64) -> Option<PendingOrder> {
        let order = self.under.remove(&id)?;
        self.ended.insert(id);
        if self.ended.len() > ENDED {
            // Numbers increase, so the first is the oldest.
            self.ended.pop_first();
        }
        Some(order)
    }

    /// Takes out the orders that are complete or waited long enough.
    pub fn settled(&mut self, now: Time, settle: Duration) -> Vec<PendingOrder> {
        let settled = self.under.values().filter(|order| order.is_settled(now, settle));
        let ids: Vec<u64> = settled.map(|order| order.id).collect();
        ids.into_iter().filter_map(|id| self.end(id)).collect()
    }

    /// The orders whose leg is selected.
    pub fn of(&self, which: impl Fn(Leg) -> bool) -> Vec<u64> {
        self.under.values().filter(|order| which(order.leg)).map(|order| order.id).collect()
    }

    /// The orders that are being carried out.
    pub fn under_way(&self) -> impl Iterator<Item = &PendingOrder> {
        self.under.values().filter(|order| order.closed.is_none())
    }
}
