//! The history of measurements: storing, reading, and merging of old rows.
//!
//! Hosts are identified by principal ([`Member::principal`]), not by name: a key survives a change of its name, and
//! after a revocation the name may be given to another host, which must not inherit the first one's measurements.
//!
//! Writers lock the ledger's row first, never the mesh's. So rows are numbered in the order in which they become
//! visible, and changes of the roster do not wait for the ledger (with SQLite, which has one lock for all, for at most
//! one batch).
//!
//! [`Member::principal`]: thalweg_wire::mesh::Member::principal

mod compact;
mod entry;
#[cfg(test)]
mod history;
mod load;
mod record;
mod row;

pub(crate) use compact::{Compacted, compact};
pub(crate) use entry::{Batch, Disagreement, NodeChange, NodeState, Sample, Topic};
pub(crate) use entry::{Recorded, Summary};
#[cfg(test)]
pub(crate) use history::history;
pub(crate) use load::{Recent, load_recent, load_since};
pub(crate) use record::record;

use std::time::Duration;

/// How long single measurements are kept. Then one row replaces those of each topic and window. Two days show a day's
/// rhythm twice.
pub(crate) const SAMPLES_KEPT: Duration = Duration::from_secs(2 * 24 * 3600);

/// The length of the windows in which older measurements are merged.
pub(crate) const WINDOW: Duration = Duration::from_secs(6 * 3600);

/// How long summaries, changes and disagreements are kept. UKAIRO follows detours for 28 days (§2.1); this is twice
/// that and a margin.
pub(crate) const KEPT: Duration = Duration::from_secs(60 * 24 * 3600);

/// The most single measurements, about 300 MB: two for each of a million legs (1 % of the legs of 10,000 nodes). Beyond
/// that the oldest are deleted.
pub(crate) const MOST_SAMPLES: i64 = 2_000_000;

/// The most summaries. Beyond that the oldest windows are deleted.
pub(crate) const MOST_SUMMARIES: i64 = 4_000_000;

/// The most changes of nodes, and the most disagreements. Beyond that the oldest are deleted.
pub(crate) const MOST_NOTES: i64 = 100_000;

/// Rows of one transaction. It takes milliseconds, so that changes of the roster can run in between.
const ROWS: usize = 250;

/// A duration as a column's nanoseconds.
fn nanos_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
