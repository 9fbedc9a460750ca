//! What is counted, for the experiments and for users.

use std::{collections::BTreeMap, time::Duration};

/// One transfer, as it went.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferTime {
    /// The path's index in the timetable, and the plan's slot; none of direct methods'.
    pub path: Option<(usize, u32)>,
    /// The sending participant.
    pub from: u32,
    /// The receiving one.
    pub to: u32,
    /// When it was let begin, since the collection began.
    pub began: Duration,
    /// From then until this host knew that it was over.
    pub took: Duration,
    /// From the first word on the transfer's own connection to its last byte; the rest is what
    /// synchronising costs.
    pub moving: Duration,
    /// Bytes that came.
    pub bytes: u64,
    /// Why it did not carry all of it.
    pub failed: Option<String>,
}

/// What a schedule came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// From the beginning to the last byte of the last file, what was left over included.
    pub makespan: Duration,
    /// Until the schedule was over.
    pub scheduled: Duration,
    /// The transfers, in the order of their ends.
    pub transfers: Vec<TransferTime>,
    /// The most bytes of this collection that each participant held for others at a time, as it
    /// says; none is left out.
    pub storage: BTreeMap<u32, u64>,
    /// Messages that were sent to other nodes to synchronise: tickets, orders, drops.
    pub messages: u64,
    /// Bytes that were not carried by their path, and came after the schedule.
    pub left_over: u64,
    /// Participants that gave other bytes than the source sent.
    pub liars: Vec<u32>,
    /// Sources that have data left, and why.
    pub failed: Vec<(u32, String)>,
}

impl Outcome {
    /// What synchronising cost: the time between what transfers took and what they moved for, in all.
    pub fn overhead(&self) -> Duration {
        self.transfers.iter().map(|one| one.took.saturating_sub(one.moving)).sum()
    }
}
