//! The submissions and keys that the operator has struck from a box. A struck submission is removed from the ledger,
//! its data is deleted at the nodes, and it is not collected. A struck key can no longer submit.
//!
//! The ledger is append-only and keeps the stamps of struck submissions. So what was struck is recorded in a journal of
//! its own: records of 8 bytes are submission numbers, those of 32 bytes are keys.

use super::{
    files::BoxFiles,
    journal::{self, Journal},
};
use std::{collections::BTreeSet, io, sync::Arc};
use thalweg_units::NodeId;
use thalweg_wire::bistro::Stamp;

/// Struck submissions and keys.
#[derive(Clone, Debug, Default)]
pub struct StruckItems {
    numbers: BTreeSet<u64>,
    keys: BTreeSet<NodeId>,
}

impl StruckItems {
    fn from_records(records: &[Vec<u8>]) -> Self {
        let number = |r: &Vec<u8>| Some(u64::from_be_bytes(r.as_slice().try_into().ok()?));
        let key = |r: &Vec<u8>| Some(NodeId::from_bytes(r.as_slice().try_into().ok()?));
        let numbers = records.iter().filter_map(number).collect();
        Self { numbers, keys: records.iter().filter_map(key).collect() }
    }

    /// Whether this submission or its key was struck.
    pub fn contains(&self, stamp: &Stamp) -> bool {
        self.numbers.contains(&stamp.number) || self.contains_key(&stamp.client)
    }

    /// Whether this key was struck.
    pub fn contains_key(&self, key: &NodeId) -> bool {
        self.keys.contains(key)
    }

    pub(super) fn add(&mut self, numbers: &[u64], keys: &[NodeId]) {
        self.numbers.extend(numbers);
        self.keys.extend(keys);
    }
}

/// Reads what was struck from the box in this directory.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn read(files: &BoxFiles) -> io::Result<StruckItems> {
    Ok(StruckItems::from_records(&journal::read(&files.struck())?.records))
}

/// Opens the strike journal of a box for the node with this key. Returns it with its content.
pub(super) fn open(files: &BoxFiles, key: &[u8]) -> io::Result<(Journal, StruckItems)> {
    let (journal, found) = Journal::open(&files.struck(), key, None)?;
    Ok((journal, StruckItems::from_records(&found.records)))
}

/// The records of these submission numbers and keys.
pub(super) fn records(numbers: &[u64], keys: &[NodeId]) -> Vec<Vec<u8>> {
    let numbers = numbers.iter().map(|number| number.to_be_bytes().to_vec());
    numbers.chain(keys.iter().map(|key| key.as_bytes().to_vec())).collect()
}

/// Strikes submissions and keys of a box while the daemon of its destination is stopped. `key` is that of the
/// destination's node.
///
/// # Errors
/// If the journal cannot be written.
pub async fn strike(
    files: &BoxFiles,
    key: NodeId,
    numbers: &[u64],
    keys: &[NodeId],
) -> Result<(), Arc<io::Error>> {
    let (journal, _) = open(files, key.as_bytes())?;
    journal.append(records(numbers, keys)).await
}
