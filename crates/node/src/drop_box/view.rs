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
    /// Those of them that no node has any more.
    pub cleared: BTreeSet<u64>,
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
        let book = journal::read(&files.collected())?.records;
        let (collected, cleared) = (numbers::<8>(&book), numbers::<9>(&book));
        Ok(Self { stamps, arrivals, collected, cleared, here: spool::count(files)? })
    }

    /// Who has committed without bringing data to any node, as far as is known.
    pub fn missing(&self) -> impl Iterator<Item = &Stamp> {
        self.stamps.iter().filter(|stamp| !self.arrivals.contains_key(&stamp.number))
    }

    /// Those that are collected, and that nodes may still have; also what came to a second node.
    pub fn copies(&self) -> impl Iterator<Item = (u64, &Arrival)> {
        let left = self.collected.difference(&self.cleared);
        left.flat_map(|n| self.arrivals.get(n).into_iter().flatten().map(|arrival| (*n, arrival)))
    }

    /// What is at nodes and not yet collected.
    pub fn due(&self) -> impl Iterator<Item = &[Arrival]> {
        let due = self.arrivals.iter().filter(|(number, _)| !self.collected.contains(number));
        due.map(|(_, arrivals)| arrivals.as_slice())
    }
}

/// The numbers in records of so many bytes: 8, the number; 9, with [`CLEARED`] behind it.
fn numbers<const BYTES: usize>(records: &[Vec<u8>]) -> BTreeSet<u64> {
    let those = records.iter().filter(|record| record.len() == BYTES);
    those.filter_map(|record| record.first_chunk().map(|n| u64::from_be_bytes(*n))).collect()
}

/// Behind a number: the nodes have thrown its data away.
const CLEARED: u8 = 1;

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

    /// No node has these any more, and none needs to be told again.
    ///
    /// # Errors
    /// The system's.
    pub async fn cleared(&self, numbers: &[u64]) -> Result<(), Arc<io::Error>> {
        let record = |n: &u64| [&n.to_be_bytes()[..], &[CLEARED]].concat();
        self.0.append(numbers.iter().map(record).collect()).await
    }
}
