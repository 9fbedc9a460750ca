//! The history of measurements: storing, reading, and merging of old rows.
//!
//! Hosts are known by the key that stands for them ([`Member::principal`]), not by name: a
//! key survives a change of its name, and a name may be given to another host after a
//! revocation, which must not inherit what was measured of the first.
//!
//! Writers take the ledger's one row first, never the mesh's: so rows are numbered in the
//! order in which they become visible, and nobody who changes the roster waits here (with
//! SQLite, where there is one lock for all, for one batch at most).
//!
//! [`Member::principal`]: thalweg_wire::mesh::Member::principal

mod compact;
mod entry;
mod load;
mod record;
mod row;
#[cfg(test)]
mod told;

pub(crate) use entry::{Batch, Change, Disagreement, Sample, State, Topic};
use entry::{Past, Recorded};
pub(crate) use load::Recent;

use std::time::Duration;

/// How long every single measurement is kept; then one row of each topic and window stands
/// for them. Two days show a day's rhythm twice.
pub(crate) const WHOLE: Duration = Duration::from_secs(2 * 24 * 3600);

/// The windows that older measurements are made one in.
pub(crate) const WINDOW: Duration = Duration::from_secs(6 * 3600);

/// How long anything is kept. UKAIRO follows detours for 28 days (§2.1); twice that, and a bit.
pub(crate) const KEPT: Duration = Duration::from_secs(60 * 24 * 3600);

/// The most single measurements that are kept, about 300 MB: a million legs (1 % of those
/// of 10,000 nodes), twice. Beyond that the oldest go.
pub(crate) const MOST_SAMPLES: i64 = 2_000_000;

/// The most rows that stand for older ones; beyond that the oldest windows go.
pub(crate) const MOST_PAST: i64 = 4_000_000;

/// The most changes of nodes, and the most disagreements; beyond that the oldest go.
pub(crate) const MOST_NOTES: i64 = 100_000;

/// Rows of one transaction: milliseconds, so that changes of the roster go on between.
const ROWS: usize = 250;

/// As columns hold it.
fn nanos_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
