//! What a node holds that this host may take from it.

use super::parcel::{Parcel, Proof};
use thalweg_files::inventory::Piece;
use thalweg_wire::object::{Check, SpoolId};
use tokio::task::JoinHandle;

/// A part of an entry, and what of it is wanted here: of an earlier session's, not all may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Where it begins in its file.
    pub from: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// Pieces of it, all of one file.
    pub wanted: Vec<Piece>,
}

impl Awaited {
    /// All of the part.
    pub fn all(part: Piece) -> Self {
        Self { from: part.range.start, bytes: part.bytes(), wanted: vec![part] }
    }

    /// Nothing of the part is wanted.
    pub fn none() -> Self {
        Self { from: 0, bytes: 0, wanted: Vec::new() }
    }

    /// The whole part, if something of it is wanted.
    pub fn piece(&self) -> Option<Piece> {
        let file = self.wanted.first()?.file;
        Some(Piece { file, range: self.from..self.from.checked_add(self.bytes)? })
    }
}

/// A whole entry.
#[derive(Debug)]
pub struct Entry {
    /// Whose data.
    pub source: u32,
    /// Who holds it.
    pub holder: u32,
    /// What it is called there.
    pub id: SpoolId,
    /// Its parts, in their order.
    pub parts: Vec<Awaited>,
    /// Who has held it, the holder last, with the hashes that each has told; nothing is known of an earlier
    /// session's.
    pub held: Vec<(u32, Vec<Option<Check>>)>,
    /// What the source says it sent, if that was asked.
    pub proof: Option<JoinHandle<Proof>>,
}

impl Entry {
    /// Where a parcel is; `None`: at its source.
    pub fn of(mut parcel: Parcel) -> Option<Self> {
        let holder = parcel.holder()?;
        Some(Self {
            source: parcel.source,
            holder,
            id: parcel.id,
            parts: parcel.parts.drain(..).map(Awaited::all).collect(),
            held: std::mem::take(&mut parcel.held),
            proof: parcel.proof.take(),
        })
    }

    /// All that is wanted of it.
    pub fn wanted(self) -> impl Iterator<Item = Piece> {
        self.parts.into_iter().flat_map(|part| part.wanted)
    }
}
