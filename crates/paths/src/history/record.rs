//! The history's form in its file.

use super::{
    Quarantined,
    memory::{Memory, clock},
};
use serde::{Deserialize, Serialize};
use thalweg_measure::Estimate;
use thalweg_units::{PathId, WallTime};

/// The form that is written and read here. A higher one is a newer program's.
const FORMAT: u32 = 1;

/// The most bytes that are read: twice what [`super::memory::MAX_ESTIMATES`] take at most.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// No index that is written is near it, however often paths come and go.
const MAX_ID: u32 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Record {
    format: u32,
    /// The ages count from here.
    written: WallTime,
    names: Vec<Named>,
    estimates: Vec<Estimate>,
    quarantine: Vec<Quarantined>,
}

/// A path's name; the index stands for it in the estimates.
#[derive(Serialize, Deserialize)]
struct Named {
    id: PathId,
    origin: String,
    path: String,
}

/// What alone must be the same in all forms.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

/// What a file says.
pub(super) enum Read {
    /// This.
    Memory(Memory),
    /// A newer program's; to be left alone.
    Newer(u32),
    /// Nothing that can be understood, and why.
    Damaged(String),
}

/// The bytes for a file written at `now`.
pub(super) fn write(memory: &Memory, now: WallTime) -> Vec<u8> {
    let named = |((origin, path), id): (&(String, String), &PathId)| Named {
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
    // Names, numbers and lists always have a JSON form.
    serde_json::to_vec(&record).unwrap_or_default()
}

/// Reads a file's bytes. Single estimates without sense are passed over.
pub(super) fn read(bytes: &[u8]) -> Read {
    match serde_json::from_slice(bytes) {
        Ok(AnyFormat { format }) if format > FORMAT => return Read::Newer(format),
        Ok(_) => {}
        Err(why) => return Read::Damaged(why.to_string()),
    }
    match serde_json::from_slice::<Record>(bytes) {
        Ok(record) => Read::Memory(memory(record)),
        Err(why) => Read::Damaged(why.to_string()),
    }
}

fn memory(record: Record) -> Memory {
    let mut memory = Memory::default();
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
