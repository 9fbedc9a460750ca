//! The file format of the history.

use super::{
    QuarantinedRelay,
    state::{HistoryState, clock},
};
use serde::{Deserialize, Serialize};
use thalweg_measure::Estimate;
use thalweg_units::{PathId, WallTime};

/// The format that is written and read. A higher number is a newer program's.
const FORMAT: u32 = 1;

/// The most bytes that are read: twice the largest size of [`super::state::MAX_ESTIMATES`].
pub(super) const MAX_BYTES: usize = 4 << 20;

/// A bound on indices, far above any that is written, however often paths come and go.
const MAX_ID: u32 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Record {
    format: u32,
    /// The time that the ages refer to.
    written: WallTime,
    names: Vec<NamedPath>,
    estimates: Vec<Estimate>,
    quarantine: Vec<QuarantinedRelay>,
}

/// The name of a path, which estimates refer to by index.
#[derive(Serialize, Deserialize)]
struct NamedPath {
    id: PathId,
    origin: String,
    path: String,
}

/// The part that is the same in all formats.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

/// The contents of a file.
pub(super) enum DecodedHistory {
    Valid(HistoryState),
    /// A file of a newer program, with its format number. It must not be changed.
    Newer(u32),
    /// The file is damaged, with the reason.
    Damaged(String),
}

/// The contents of a file written at `now`.
pub(super) fn write(memory: &HistoryState, now: WallTime) -> Vec<u8> {
    let named = |((origin, path), id): (&(String, String), &PathId)| NamedPath {
        id: *id,
        origin: origin.clone(),
        path: path.clone(),
    };
    let record = Record {
        format: FORMAT,
        written: now,
        names: memory.names.iter().map(named).collect(),
        estimates: memory.table.iter(clock(now)).collect(),
        quarantine: memory.blames.iter().cloned().collect(),
    };
    // Names, numbers and lists can always be written as JSON.
    serde_json::to_vec(&record).unwrap_or_default()
}

/// Parses a file's bytes. Invalid estimates are skipped.
pub(super) fn read(bytes: &[u8]) -> DecodedHistory {
    match serde_json::from_slice(bytes) {
        Ok(AnyFormat { format }) if format > FORMAT => return DecodedHistory::Newer(format),
        Ok(_) => {}
        Err(why) => return DecodedHistory::Damaged(why.to_string()),
    }
    match serde_json::from_slice::<Record>(bytes) {
        Ok(record) => DecodedHistory::Valid(memory(record)),
        Err(why) => DecodedHistory::Damaged(why.to_string()),
    }
}

fn memory(record: Record) -> HistoryState {
    let mut memory = HistoryState::default();
    for name in record.names.into_iter().filter(|name| name.id.0 < MAX_ID) {
        memory.names.insert((name.origin, name.path), name.id);
    }
    for estimate in record.estimates {
        _ = memory.table.insert(estimate, clock(record.written));
    }
    record.quarantine.into_iter().for_each(|blame| memory.blames.add(blame));
    memory.settle(record.written);
    memory
}
