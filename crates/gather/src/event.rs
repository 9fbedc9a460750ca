//! What happens in the course of a collection.
//!
//! As JSON: one object per line, `event` names it. Rates are in bits per second, sizes in bytes,
//! times in seconds, as the fields' names say.

use super::Forecast;
use serde::Serialize;
use std::fmt;
use thalweg_base::job::JobId;
use thalweg_wire::mesh::Name;

/// What happens, in the order in which it does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A source has said what it has.
    Listed {
        /// Its name.
        source: Name,
        /// Its files.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// How long that took.
        seconds: f64,
    },
    /// A source is left out from here on; the rest goes on.
    SourceFailed {
        /// Its name.
        source: Name,
        /// What happened, and what to try.
        why: String,
    },
    /// What is to be fetched is known.
    Started {
        /// The job's name; kept when a later call resumes it.
        job: JobId,
        /// The directory.
        into: String,
        /// Files that are not all here.
        files: u64,
        /// Bytes that are missing.
        bytes: u64,
        /// Files that are here already.
        present_files: u64,
        /// Their bytes; those of unfinished files are not among them.
        present_bytes: u64,
        /// Other items to create or change.
        #[serde(flatten)]
        changes: Changes,
    },
    /// Files of a source that are to be fetched, in parts; only where a list is wanted.
    Files {
        /// The source.
        source: Name,
        /// Some of its files.
        files: Vec<FileListed>,
    },
    /// What a source has and is not collected; it counts as no failure.
    PassedOver {
        /// The source.
        source: Name,
        /// How many devices, sockets and pipes.
        special: u64,
        /// How many of Thalweg's own files: records, files in the making.
        own: u64,
        /// Some of them, as they would be called here, made printable; special ones first.
        paths: Vec<String>,
    },
    /// How it shall go, as far as estimates tell.
    Planned(Forecast),
    /// A way of a source is used.
    WayOpened {
        /// The source.
        source: Name,
        /// The hosts between it and here, nearest to the source first; empty: none.
        via: Vec<Name>,
    },
    /// A way of a source is not used any more.
    WayClosed {
        /// The source.
        source: Name,
        /// The hosts between.
        via: Vec<Name>,
        /// Why.
        why: String,
        /// Whether it broke, rather than being left.
        failed: bool,
    },
    /// The rest is planned anew.
    Replanned {
        /// What was not as planned.
        why: String,
        /// When all is there by the new plan, from the start.
        #[serde(skip_serializing_if = "Option::is_none")]
        makespan_seconds: Option<f64>,
    },
    /// A transfer of a schedule is over.
    Transfer {
        /// Its path's index in the timetable; absent: the method has none.
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<usize>,
        /// Its slot in the plan; absent as above.
        #[serde(skip_serializing_if = "Option::is_none")]
        slot: Option<u32>,
        /// Who sent.
        from: Name,
        /// Who received.
        to: Name,
        /// When it was let begin, from the start.
        began_seconds: f64,
        /// From then until it was known to be over.
        seconds: f64,
        /// While bytes moved; the rest is what synchronising costs.
        moving_seconds: f64,
        /// Bytes that came.
        bytes: u64,
        /// Why it did not carry all of it.
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A file is not kept; the rest goes on.
    FileFailed {
        /// Its source.
        source: Name,
        /// Its path here, from `/` on; of what could not be listed, its path there. Made printable.
        file: String,
        /// What happened, and what to try.
        why: String,
    },
    /// More files failed for one reason than were named ([`Self::FileFailed`]).
    MoreFailed {
        /// Their source; absent: of several.
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<Name>,
        /// Why, of the first of them; empty: for several reasons.
        why: String,
        /// How many.
        count: u64,
    },
    /// How far it is; a few times a second.
    Progress(Progress),
    /// Something to know.
    Note {
        /// In words.
        text: String,
    },
    /// The end, however it is.
    Ended(Totals),
}

/// A file that is to be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileListed {
    /// Its path at the source, made printable.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// What of it is not here.
    pub missing_bytes: u64,
}

/// How far a collection is, counted at this end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Since the first byte was asked for.
    pub seconds: f64,
    /// Bytes that came in this session.
    pub done_bytes: u64,
    /// Bytes that are to come in all.
    pub total_bytes: u64,
    /// Files that are complete.
    pub done_files: u64,
    /// Files that are to be fetched.
    pub total_files: u64,
    /// Over the last interval.
    pub rate_bps: u64,
    /// The time left at the rates of late, by the slowest source; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<f64>,
    /// The time left by the plan, as long as something is missing; below zero: it should be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_left_seconds: Option<f64>,
    /// Each source.
    pub sources: Vec<SourceProgress>,
}

/// How far a source's files are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceProgress {
    /// Its name.
    pub source: Name,
    /// Bytes that came.
    pub done_bytes: u64,
    /// Bytes that are to come.
    pub total_bytes: u64,
    /// Over the last interval.
    pub rate_bps: u64,
    /// The time left at the rate of late; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<f64>,
}

/// How a collection ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// In a word.
    pub outcome: Outcome,
    /// Files that were fetched and have their names.
    pub files: u64,
    /// Other items created or changed; empty in a dry run.
    #[serde(flatten)]
    pub changes: Changes,
    /// Files and directories whose set-user-ID, set-group-ID or sticky bits are not kept; counted by `send` only.
    pub special_bits: u64,
    /// Bytes fetched of files that are here, or are kept to be gone on with.
    pub bytes: u64,
    /// Bytes that came of files that are not here: they changed meanwhile, or could not be kept.
    pub lost_bytes: u64,
    /// Bytes that came a second time, and are in no other number: copies of what was slow.
    pub duplicate_bytes: u64,
    /// Files that were here before.
    pub present_files: u64,
    /// Files that are not here, or not as they are at the source.
    pub failed_files: u64,
    /// Files that were begun or waited when it ended.
    pub unfinished_files: u64,
    /// Sources that were left out.
    pub failed_sources: u64,
    /// Bytes of unfinished files that the same command takes over.
    pub kept_bytes: u64,
    /// Of this call, from the first byte asked for until all have their names.
    pub seconds: f64,
    /// Fetched bytes over that time.
    pub rate_bps: u64,
    /// What the plan said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_seconds: Option<f64>,
    /// No schedule over the legs of the plan is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_seconds: Option<f64>,
    /// Whether it took longer than `--deadline`.
    pub late: bool,
    /// Of each source.
    pub sources: Vec<SourceTotals>,
    /// What others held at the most on the way; nodes that held nothing are left out.
    pub storage: Vec<Stored>,
    /// Messages to other nodes that only synchronise the transfers of a timetable.
    pub messages: u64,
    /// Bytes that came by other ways than the timetable's.
    pub off_plan_bytes: u64,
    /// Ways that the fluid method opened, in all.
    pub ways: u32,
    /// How often its rates were away from the planned ones, for three looks in a row.
    pub drifts: u32,
    /// Legs that it saw slow each other.
    pub shared: Vec<Shared>,
    /// What synchronising took, over all transfers of a timetable.
    pub overhead_seconds: f64,
    /// Why it ended, if all is not well.
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
pub struct Shared {
    /// From, to.
    pub legs: Vec<(Name, Name)>,
    /// What they carry together.
    pub rate_bps: u64,
}

/// What came from a source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceTotals {
    /// Its name.
    pub source: Name,
    /// Bytes that came.
    pub bytes: u64,
    /// When the last of them did, from the first byte that was asked for of any.
    pub seconds: f64,
}

/// What a node held of others' data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stored {
    /// The node.
    pub node: Name,
    /// The most bytes at a time.
    pub bytes: u64,
}

/// How a collection ended, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything is here.
    Complete,
    /// Some files failed, or a source; the rest is here.
    Partial,
    /// It was asked to end.
    Interrupted,
    /// Nothing was to be moved: it was looked at and planned.
    Planned,
    /// It could not go on.
    #[default]
    Failed,
}

/// Whoever wants to know what happens.
///
/// Called from the transfers' own tasks: it must not block.
pub trait EventSink: Send + Sync + fmt::Debug {
    /// Takes note of one event.
    fn event(&self, event: Event);
}

/// A sink that listens to nothing.
impl EventSink for () {
    fn event(&self, _: Event) {}
}
