//! The data that a path carries: parts of files, and the tickets for them.

use crate::reads::{length, read};
use thalweg_files::inventory::{Inventory, Piece};
use thalweg_wire::{
    mesh::Name,
    object::{Grant, MAX_PART, MAX_PARTS, MAX_REQUEST, SpoolId, Ticket, TransferHash},
};
use tokio::task::JoinHandle;

/// The source's hashes of the parts it sent; `None`: it does not say.
pub type Proof = Option<Vec<Option<TransferHash>>>;

/// Data of one source on its way.
#[derive(Debug)]
pub struct Parcel {
    pub source: u32,
    /// The parts in the order in which they are sent.
    pub parts: Vec<Piece>,
    /// The source's tickets for the parts.
    pub tickets: Vec<Ticket>,
    /// Its id at its holder.
    pub id: SpoolId,
    /// The nodes that have held it, the first one first, each with the hashes that it reported.
    pub held: Vec<(u32, Vec<Option<TransferHash>>)>,
    /// The holder's ticket for the next node.
    pub onward: Option<Ticket>,
    /// The source's hashes, requested while the data moves on.
    pub proof: Option<JoinHandle<Proof>>,
}

impl Parcel {
    /// Creates a parcel of these parts without tickets.
    pub fn new(source: u32, parts: Vec<Piece>, id: SpoolId) -> Self {
        let (tickets, held) = (Vec::new(), Vec::new());
        Self { source, parts, tickets, id, held, onward: None, proof: None }
    }

    /// The total size, bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(Piece::bytes).sum()
    }

    /// The node that holds it, if it has left its source.
    pub fn holder(&self) -> Option<u32> {
        self.held.last().map(|held| held.0)
    }
}

/// Splits pieces into parts that a ticket allows. The second list holds those too many for one parcel.
pub fn parts(pieces: Vec<Piece>) -> (Vec<Piece>, Vec<Piece>) {
    let (mut parts, mut more) = (Vec::new(), Vec::new());
    for mut piece in pieces {
        while piece.bytes() > MAX_PART && parts.len() < MAX_PARTS {
            let end = piece.range.start + MAX_PART;
            parts.push(Piece { file: piece.file, range: piece.range.start..end });
            piece.range.start = end;
        }
        let place = if parts.len() < MAX_PARTS { &mut parts } else { &mut more };
        place.push(piece);
    }
    (parts, more)
}

/// Creates grants for the parts, each short enough for a request.
pub fn grants(inventory: &Inventory, parts: &[Piece], to: &Name) -> Vec<Grant> {
    let mut grants: Vec<Grant> = Vec::new();
    let mut room = 0;
    for read in parts.iter().filter_map(|part| read(inventory, part)) {
        let length = length(&read.file);
        match grants.last_mut().filter(|_| length <= room) {
            Some(grant) => grant.reads.push(read),
            None => {
                grants.push(Grant { reads: vec![read], to: to.clone() });
                room = REQUEST;
            }
        }
        room = room.saturating_sub(length);
    }
    grants
}

/// The maximum estimated size of a request, bytes: half of the allowed size, as a margin. Lengths are estimated from
/// above.
pub const REQUEST: usize = MAX_REQUEST / 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_files::inventory::FileNo;

    proptest! {
        #[test]
        fn parts_cover_the_pieces_in_order_and_none_is_too_long(
            sizes in prop::collection::vec(1..5 * MAX_PART, 0..20),
        ) {
            let piece = |(file, size): (u32, &u64)| Piece { file: FileNo(file), range: 3..3 + size };
            let pieces: Vec<Piece> = (0..).zip(&sizes).map(piece).collect();
            let (parts, more) = parts(pieces.clone());
            prop_assert!(more.is_empty() && parts.iter().all(|part| part.bytes() <= MAX_PART));
            let mut joined: Vec<Piece> = Vec::new();
            for part in parts {
                match joined.last_mut().filter(|l| l.file == part.file) {
                    Some(last) => {
                        prop_assert_eq!(last.range.end, part.range.start);
                        last.range.end = part.range.end;
                    }
                    None => joined.push(part),
                }
            }
            prop_assert_eq!(joined, pieces);
        }
    }

    #[test]
    fn pieces_beyond_the_maximum_of_a_parcel_are_returned() {
        let pieces: Vec<Piece> =
            (0..MAX_PARTS as u32 + 5).map(|n| Piece { file: FileNo(n), range: 0..1 }).collect();
        let (parts, more) = parts(pieces);
        assert_eq!((parts.len(), more.len()), (MAX_PARTS, 5));
    }
}
