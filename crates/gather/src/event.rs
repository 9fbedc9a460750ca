//! The events of a collection.
//!
//! In JSON each event is one object on a line; the field `event` names it. Rates are in bits per second, sizes in bytes
//! and times in seconds, as the field names say.

use super::Forecast;
use serde::Serialize;
use std::fmt;
use thalweg_base::{job::JobId, verdict::Verdict};
use thalweg_wire::mesh::Name;

/// An event, reported in the order of occurrence.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A source has listed its files.
    Listed {
        source: Name,
        /// The number of its files.
        files: u64,
        /// The total size of its files, bytes.
        bytes: u64,
        /// How long the listing took.
        seconds: f64,
    },
    /// A source is left out from here on; the collection continues with the others.
    SourceFailed {
        source: Name,
        /// What happened, and what the user can try.
        why: String,
    },
    /// The set of files to fetch is known.
    Started {
        /// The job's name; stays the same when a later call resumes it.
        job: JobId,
        /// The target directory.
        into: String,
        /// Files that are not complete here.
        files: u64,
        /// Missing bytes.
        bytes: u64,
        /// Files that are already complete here.
        present_files: u64,
        /// Bytes of complete files; those of unfinished files do not count.
        present_bytes: u64,
        /// Other items to create or change.
        #[serde(flatten)]
        changes: Changes,
    },
    /// Some files of a source that will be fetched; sent only if a list is requested.
    Files {
        source: Name,
        /// Some of its files.
        files: Vec<FileListed>,
    },
    /// Items of a source that are not collected. This does not count as a failure.
    PassedOver {
        source: Name,
        /// The number of devices, sockets and pipes.
        special: u64,
        /// The number of Thalweg's own files: records and unfinished files.
        own: u64,
        /// Some of their paths as they would be here, made printable; special files come first.
        paths: Vec<String>,
    },
    /// The expected course, according to the estimates.
    Planned(Forecast),
    /// A path from a source is in use.
    WayOpened {
        source: Name,
        /// The hosts between the source and this host, nearest to the source first; empty: none.
        via: Vec<Name>,
    },
    /// A path from a source is no longer used.
    WayClosed {
        source: Name,
        /// The hosts between the source and this host.
        via: Vec<Name>,
        why: String,
        /// Whether it broke, rather than being closed on purpose.
        failed: bool,
    },
    /// The remaining data is planned anew.
    Replanned {
        /// What differed from the plan.
        why: String,
        /// When everything arrives by the new plan, since the start.
        #[serde(skip_serializing_if = "Option::is_none")]
        makespan_seconds: Option<f64>,
    },
    /// A transfer of a schedule has ended.
    Transfer {
        /// The index of its path in the timetable; absent: the method has no timetable.
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<usize>,
        /// Its slot in the plan; absent for the same reason.
        #[serde(skip_serializing_if = "Option::is_none")]
        slot: Option<u32>,
        from: Name,
        to: Name,
        /// When it was allowed to begin, since the start.
        began_seconds: f64,
        /// The time until its end was known.
        seconds: f64,
        /// The time during which bytes moved; the rest is the cost of synchronisation.
        moving_seconds: f64,
        /// Bytes that arrived.
        bytes: u64,
        /// Why it did not carry all of its data.
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A file could not be fetched or stored; the collection continues with the others.
    FileFailed {
        source: Name,
        /// Its path here, starting with `/`; if it could not be listed, its path at the source. Made printable.
        file: String,
        /// What happened, and what the user can try.
        why: String,
    },
    /// More files failed for the same reason than were named ([`Self::FileFailed`]).
    MoreFailed {
        /// Their source; absent: several.
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<Name>,
        /// The reason of the first of them; empty: several reasons.
        why: String,
        /// The number of files.
        count: u64,
    },
    /// The progress; sent a few times a second.
    Progress(Progress),
    /// A message for the user.
    Note { text: String },
    /// Why it took as long as it did; comes before the end, unless it failed or was stopped.
    Verdict(Verdict),
    /// The end of the collection, in any case.
    Ended(Totals),
}

/// A file that will be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileListed {
    /// Its path at the source, made printable.
    pub path: String,
    pub bytes: u64,
    /// Bytes that are missing here.
    pub missing_bytes: u64,
}

/// The progress of a collection, counted at the destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Time since the first byte was requested.
    pub seconds: f64,
    /// Bytes received in this session.
    pub done_bytes: u64,
    /// Bytes to receive in total.
    pub total_bytes: u64,
    /// Files that are complete.
    pub done_files: u64,
    /// Files to fetch.
    pub total_files: u64,
    /// The rate over the last interval.
    pub rate_bps: u64,
    /// The time left at recent rates, by the slowest source; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<f64>,
    /// The time left by the plan while something is missing; negative: the collection is behind the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_left_seconds: Option<f64>,
    /// The progress of each source.
    pub sources: Vec<SourceProgress>,
}

/// The progress of one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceProgress {
    pub source: Name,
    pub done_bytes: u64,
    /// Bytes to receive.
    pub total_bytes: u64,
    /// The rate over the last interval.
    pub rate_bps: u64,
    /// The time left at the recent rate; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<f64>,
}

/// The result of a collection.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// The outcome in a word.
    pub outcome: Outcome,
    /// Files that were fetched and have their final names.
    pub files: u64,
    /// Other items created or changed; empty in a dry run.
    #[serde(flatten)]
    pub changes: Changes,
    /// Files and directories whose set-user-ID, set-group-ID or sticky bits are not kept; counted by `send` only.
    pub special_bits: u64,
    /// Bytes fetched of files that are complete, or that are kept for a later session to continue.
    pub bytes: u64,
    /// Bytes received of files that are not kept: they changed meanwhile, or could not be stored.
    pub lost_bytes: u64,
    /// Bytes received twice, because a slow request was copied to another path; not part of the other numbers.
    pub duplicate_bytes: u64,
    /// Files that were complete before.
    pub present_files: u64,
    /// Files that are missing here, or differ from those of the source.
    pub failed_files: u64,
    /// Files that were partly fetched or not yet begun at the end.
    pub unfinished_files: u64,
    /// Sources that were left out.
    pub failed_sources: u64,
    /// Bytes of unfinished files that the same command will reuse.
    pub kept_bytes: u64,
    /// Duration of this call, from the first requested byte until all files have their final names.
    pub seconds: f64,
    /// Bytes fetched divided by that time.
    pub rate_bps: u64,
    /// The duration by the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_seconds: Option<f64>,
    /// A lower bound: no schedule over the plan's legs is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_seconds: Option<f64>,
    /// Whether it took longer than `--deadline`.
    pub late: bool,
    /// The totals of each source.
    pub sources: Vec<SourceTotals>,
    /// The most that each other node held on the way; nodes that held nothing are left out.
    pub storage: Vec<NodeStorage>,
    /// Messages to other nodes that only synchronise the transfers of a timetable.
    pub messages: u64,
    /// Bytes that came by other paths than those of the timetable.
    pub off_plan_bytes: u64,
    /// Paths opened by the fluid method.
    pub ways: u32,
    /// How often the rates differed from the planned ones in three consecutive observations.
    pub drifts: u32,
    /// Sets of legs that were observed to slow each other.
    pub shared: Vec<SharedBottleneck>,
    /// The synchronisation time of all transfers of a timetable.
    pub overhead_seconds: f64,
    /// Why it ended, unless all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Items of a tree that are created or changed, besides files with their content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Symbolic links.
    pub links: u64,
    /// New directories.
    pub directories: u64,
    /// Existing files, links and directories whose mode, owner, time or extended attributes change.
    pub attributes: u64,
}

impl Changes {
    /// Whether nothing is created or changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Legs that share a bottleneck.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SharedBottleneck {
    /// The legs, as pairs of sender and receiver.
    pub legs: Vec<(Name, Name)>,
    /// Their common rate.
    pub rate_bps: u64,
}

/// The data received from a source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceTotals {
    pub source: Name,
    /// Bytes received.
    pub bytes: u64,
    /// When the last byte arrived, since the first byte was requested from any source.
    pub seconds: f64,
}

/// Data of others that a node held.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeStorage {
    pub node: Name,
    /// The maximum number of bytes at a time.
    pub bytes: u64,
}

/// The outcome of a collection, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Complete,
    /// Some files or sources failed; the rest is here.
    Partial,
    /// It was asked to end.
    Interrupted,
    /// Nothing was moved: the run only listed and planned.
    Planned,
    /// It could not continue.
    #[default]
    Failed,
}

/// Receives events.
///
/// The transfers' own tasks call it, so it must not block.
pub trait EventSink: Send + Sync + fmt::Debug {
    fn event(&self, event: Event);
}

/// Ignores all events.
impl EventSink for () {
    fn event(&self, _: Event) {}
}
