//! Spool entries that a node holds and that this host can fetch from it.

use super::parcel::{Parcel, Proof};
use thalweg_files::inventory::Piece;
use thalweg_wire::object::{SpoolId, TransferHash};
use tokio::task::JoinHandle;

/// A part of an entry and its wanted pieces. Of an earlier session's part only some bytes may be wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedPart {
    /// Its offset in its file.
    pub from: u64,
    pub bytes: u64,
    /// Its wanted pieces, all of one file.
    pub wanted: Vec<Piece>,
}

impl AwaitedPart {
    /// Creates a part that is wanted completely.
    pub fn all(part: Piece) -> Self {
        Self { from: part.range.start, bytes: part.bytes(), wanted: vec![part] }
    }

    /// Creates a part of which nothing is wanted.
    pub fn none() -> Self {
        Self { from: 0, bytes: 0, wanted: Vec::new() }
    }

    /// Returns the whole part if any piece of it is wanted.
    pub fn piece(&self) -> Option<Piece> {
        let file = self.wanted.first()?.file;
        Some(Piece { file, range: self.from..self.from.checked_add(self.bytes)? })
    }
}

/// A complete entry.
#[derive(Debug)]
pub struct SpoolEntry {
    /// The source of the data.
    pub source: u32,
    /// The node that holds it.
    pub holder: u32,
    /// Its id at the holder.
    pub id: SpoolId,
    /// Its parts in order.
    pub parts: Vec<AwaitedPart>,
    /// The nodes that have held it, the present holder last, each with the hashes that it reported; empty for entries
    /// of an earlier session.
    pub held: Vec<(u32, Vec<Option<TransferHash>>)>,
    /// The source's hashes of the data it sent, if they were requested.
    pub proof: Option<JoinHandle<Proof>>,
}

impl SpoolEntry {
    /// Converts a parcel to the entry at its holder; `None` if it is still at its source.
    pub fn of(mut parcel: Parcel) -> Option<Self> {
        let holder = parcel.holder()?;
        Some(Self {
            source: parcel.source,
            holder,
            id: parcel.id,
            parts: parcel.parts.drain(..).map(AwaitedPart::all).collect(),
            held: std::mem::take(&mut parcel.held),
            proof: parcel.proof.take(),
        })
    }

    /// The wanted pieces of all parts.
    pub fn wanted(self) -> impl Iterator<Item = Piece> {
        self.parts.into_iter().flat_map(|part| part.wanted)
    }
}
