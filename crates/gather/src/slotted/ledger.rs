//! Counters of a schedule, for experiments and users.

use std::{collections::BTreeMap, time::Duration};

/// The measured course of one transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferTime {
    /// The path's index in the timetable and the plan's slot; `None` for direct methods.
    pub path: Option<(usize, u32)>,
    /// The sending participant.
    pub from: u32,
    /// The receiving participant.
    pub to: u32,
    /// When it was allowed to begin, since the collection began.
    pub began: Duration,
    /// The time until this host knew of its end.
    pub took: Duration,
    /// The time from the first message on the transfer's own connection to its last byte; the rest is the cost of
    /// synchronisation.
    pub moving: Duration,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Why it did not carry all of its data.
    pub failed: Option<String>,
}

/// The result of a schedule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleOutcome {
    /// The time from the start to the last byte of the last file, including data left over by the schedule.
    pub makespan: Duration,
    /// The time until the schedule was over.
    pub scheduled: Duration,
    /// The transfers in the order of their ends.
    pub transfers: Vec<TransferTime>,
    /// The most bytes of this collection that each participant held for others at a time, as it reports; participants
    /// with zero are left out.
    pub storage: BTreeMap<u32, u64>,
    /// Messages to other nodes that only synchronise: tickets, orders and drops.
    pub messages: u64,
    /// Bytes that their path did not carry and that came after the schedule.
    pub left_over: u64,
    /// Participants that forwarded other bytes than the source sent.
    pub liars: Vec<u32>,
    /// Sources with data left, and why.
    pub failed: Vec<(u32, String)>,
}

impl ScheduleOutcome {
    /// The synchronisation cost of all transfers: their durations minus the times during which bytes moved.
    pub fn overhead(&self) -> Duration {
        self.transfers.iter().map(|one| one.took.saturating_sub(one.moving)).sum()
    }
}
