//! Orders between the moment they are given and the moment both ends have spoken.

use super::{known::Leg, nodes::Slot};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use thalweg_units::Time;
use tokio::sync::Notify;

/// Ended orders that are remembered, to tell a second report from a strange one. Of more the
/// oldest, which has the lowest number, is forgotten.
const ENDED: usize = 10_000;

/// What one end says of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Claim {
    /// bit/s.
    pub bps: f64,
    pub spread: Option<f64>,
    pub bytes: u64,
    /// Whether the leg may be faster.
    pub at_least: bool,
    /// When it ended.
    pub at: Time,
}

/// One order.
#[derive(Clone, Debug)]
pub(super) struct Under {
    pub id: u64,
    pub leg: Leg,
    pub given: Time,
    pub until: Time,
    pub sender: Option<Claim>,
    pub receiver: Option<Claim>,
    /// The bytes that it has cost each end so far.
    pub charged: u64,
    /// Since when no more than the other end's word is awaited.
    pub closed: Option<Time>,
}

impl Under {
    /// A date from an age: not before the order, whatever the reporter's clock did.
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
    under: BTreeMap<u64, Under>,
    ended: BTreeSet<u64>,
    /// Given and not fetched, by sender.
    mail: BTreeMap<Slot, Vec<u64>>,
    wakes: HashMap<Slot, Arc<Notify>>,
}

impl Orders {
    /// Puts an order where its sender finds it, and wakes that.
    pub fn give(&mut self, id: u64, leg: Leg, now: Time, until: Time) {
        let (sender, receiver, closed) = (None, None, None);
        let under = Under { id, leg, given: now, until, sender, receiver, charged: 0, closed };
        self.under.insert(id, under);
        self.mail.entry(leg.0).or_default().push(id);
        self.wakes.iter().filter(|(slot, _)| **slot == leg.0).for_each(|(_, wake)| {
            wake.notify_one();
        });
    }

    /// What wakes this member's poll.
    pub fn wake(&mut self, slot: Slot) -> Arc<Notify> {
        self.wakes.entry(slot).or_default().clone()
    }

    /// The orders that wait for this sender; they are its now.
    pub fn fetch(&mut self, slot: Slot, now: Time) -> Vec<Under> {
        let ids = self.mail.remove(&slot).unwrap_or_default();
        let orders = ids.iter().filter_map(|id| self.under.get(id));
        orders.filter(|order| order.until > now).cloned().collect()
    }

    /// The order, unless it has ended.
    pub fn get(&mut self, id: u64) -> Option<&mut Under> {
        self.under.get_mut(&id)
    }

    /// Whether there was such an order of late.
    pub fn has_ended(&self, id: u64) -> bool {
        self.ended.contains(&id)
    }

    /// No more than the other end's word is awaited from now on.
    pub fn close(&mut self, id: u64, now: Time) {
        if let Some(order) = self.under.get_mut(&id) {
            order.closed.get_or_insert(now);
        }
        self.mail.values_mut().for_each(|ids| ids.retain(|other| *other != id));
    }

    /// Forgets an order of which nothing comes.
    pub fn drop(&mut self, id: u64) -> Option<Under> {
        self.close(id, Time::ZERO);
        self.end(id)
    }

    fn end(&mut self, id: u64) -> Option<Under> {
        let order = self.under.remove(&id)?;
        self.ended.insert(id);
        if self.ended.len() > ENDED {
            // Numbers grow.
            self.ended.pop_first();
        }
        Some(order)
    }

    /// Takes those out of which nothing more is awaited.
    pub fn settled(&mut self, now: Time, settle: Duration) -> Vec<Under> {
        let settled = self.under.values().filter(|order| order.is_settled(now, settle));
        let ids: Vec<u64> = settled.map(|order| order.id).collect();
        ids.into_iter().filter_map(|id| self.end(id)).collect()
    }

    /// Orders of or to these members, or all.
    pub fn of(&self, which: impl Fn(Leg) -> bool) -> Vec<u64> {
        self.under.values().filter(|order| which(order.leg)).map(|order| order.id).collect()
    }

    /// Legs that are being measured.
    pub fn under_way(&self) -> impl Iterator<Item = &Under> {
        self.under.values().filter(|order| order.closed.is_none())
    }
}
