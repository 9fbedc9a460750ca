//! What an operator sees of a box, from its directory, whether its daemon runs or not.

use super::{
    arrivals::{self, Arrival},
    files::BoxFiles,
    journal::{self, Journal},
    ledger,
    spool::{self, SpoolCounts},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};
use thalweg_units::NodeId;
use thalweg_wire::bistro::Stamp;

/// A box's books.
#[derive(Debug)]
pub struct View {
    /// Who has committed to what, in the order in which it came.
    pub stamps: Vec<Stamp>,
    /// Which node has whose data, by the stamps' numbers; the first that said so first.
    pub arrivals: BTreeMap<u64, Vec<Arrival>>,
    /// The numbers of those that were collected.
    pub collected: BTreeSet<u64>,
    /// What this node holds itself.
    pub here: SpoolCounts,
}

impl View {
    /// Reads them.
    ///
    /// # Errors
    /// The system's; `InvalidData` if a book is damaged.
    pub fn read(files: &BoxFiles) -> io::Result<Self> {
        let stamps = ledger::stamps(files)?;
        let mut arrivals: BTreeMap<u64, Vec<Arrival>> = BTreeMap::new();
        for arrival in arrivals::arrivals(files)? {
            arrivals.entry(arrival.stamp.value().number).or_default().push(arrival);
        }
        let collected = collected(&journal::read(&files.collected())?.records);
        Ok(Self { stamps, arrivals, collected, here: spool::count(files)? })
    }

    /// Who has committed without bringing data to any node, as far as is known.
    pub fn missing(&self) -> impl Iterator<Item = &Stamp> {
        self.stamps.iter().filter(|stamp| !self.arrivals.contains_key(&stamp.number))
    }

    /// What is at nodes and not yet collected.
    pub fn due(&self) -> impl Iterator<Item = &[Arrival]> {
        let due = self.arrivals.iter().filter(|(number, _)| !self.collected.contains(number));
        due.map(|(_, arrivals)| arrivals.as_slice())
    }
}

fn collected(records: &[Vec<u8>]) -> BTreeSet<u64> {
    let number = |record: &Vec<u8>| Some(u64::from_be_bytes(record.as_slice().try_into().ok()?));
    records.iter().filter_map(number).collect()
}

/// Notes what was collected; one process at a time.
#[derive(Debug)]
pub struct Collected(Journal);

impl Collected {
    /// Of the box of the node with this key.
    ///
    /// # Errors
    /// The system's.
    pub fn open(files: &BoxFiles, key: NodeId) -> io::Result<Self> {
        Ok(Self(Journal::open(&files.collected(), key.as_bytes(), None)?.0))
    }

    /// These are on the disk under their names; durable when this returns.
    ///
    /// # Errors
    /// The system's.
    pub async fn note(&self, numbers: &[u64]) -> Result<(), Arc<io::Error>> {
        self.0.append(numbers.iter().map(|n| n.to_be_bytes().to_vec()).collect()).await
    }
}
