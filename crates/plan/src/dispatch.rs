//! From wanted measurements to orders: who may measure now (UKAIRO §2.1: each node is in at
//! most one measurement at a time), within budgets, deadlines and retries.

use crate::schedule::{Excluded, Pair};
use std::time::Duration;
use thalweg_units::{ByteSize, Time};

/// The limits of measuring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The most bytes of one measurement.
    pub test_bytes: ByteSize,
    /// The longest time of one measurement.
    pub test_time: Duration,
    /// The most bytes that one node sends or receives for measuring in a day.
    pub bytes_per_day: ByteSize,
    /// From an order to its report, at most.
    pub deadline: Duration,
    /// How often a failed measurement is tried again.
    pub retries: u32,
    /// The most measurements at a time in all.
    pub at_once: usize,
    /// How long a node that is down is left alone.
    pub rest: Duration,
}

/// An order that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Names it.
    pub id: u64,
    /// Sender and receiver.
    pub pair: Pair,
    /// Void after this.
    pub until: Time,
}

/// How an order ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Measured, at this cost.
    Measured(ByteSize),
    /// Failed, at this cost.
    Failed(ByteSize),
    /// This node of the pair did not answer.
    Down(usize),
}

/// Wanted measurements and those under way.
#[derive(Clone, Debug)]
pub struct Dispatch {
    limits: Limits,
}

impl Dispatch {
    /// Nothing wanted yet; ids are given from `first_id` on.
    pub const fn new(limits: Limits, first_id: u64) -> Self {
        let _ = first_id;
        Self { limits }
    }

    /// Queues measurements behind those wanted before; known ones are passed over.
    pub fn want(&mut self, pairs: impl IntoIterator<Item = Pair>) {
        pairs.into_iter().for_each(drop);
    }

    /// The next order that may be given now, if one may; it counts as under way.
    pub fn next(&mut self, now: Time) -> Option<Given> {
        let _ = (now, self.limits);
        None
    }

    /// An order's end; `None` if it was not under way (late, duplicate, unknown).
    pub fn ended(&mut self, id: u64, how: Ended, now: Time) -> Option<Given> {
        let _ = (id, how, now);
        None
    }

    /// Ends the orders whose time is over.
    pub fn expire(&mut self, now: Time) -> Vec<Given> {
        let _ = now;
        vec![]
    }

    /// Pairs that are passed over: a node rests, or the retries are used up.
    pub fn excluded(&self, now: Time) -> Excluded {
        let _ = now;
        Excluded::default()
    }

    /// Nodes that rest, since they did not answer, and until when.
    pub fn resting(&self, now: Time) -> Vec<(usize, Time)> {
        let _ = now;
        vec![]
    }

    /// Whether fewer are wanted than could be given soon: more should be asked of the schedule.
    pub fn is_hungry(&self) -> bool {
        false
    }

    /// When something changes by time alone, if ever.
    pub fn wakes(&self) -> Option<Time> {
        None
    }
}
