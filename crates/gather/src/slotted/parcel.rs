//! What a path carries: parts of files, and the tickets for them.

use crate::reads::{length, read};
use thalweg_files::inventory::{Inventory, Piece};
use thalweg_wire::{
    mesh::Name,
    object::{Check, Grant, MAX_PART, MAX_PARTS, MAX_REQUEST, SpoolId, Ticket},
};
use tokio::task::JoinHandle;

/// What the source says it sent, part by part; `None`: it does not say.
pub type Proof = Option<Vec<Option<Check>>>;

/// Data of one source on its way.
#[derive(Debug)]
pub struct Parcel {
    /// Whose.
    pub source: u32,
    /// The parts, in the order in which they come.
    pub parts: Vec<Piece>,
    /// The source's tickets for them.
    pub tickets: Vec<Ticket>,
    /// What it is called where it is held.
    pub id: SpoolId,
    /// Who has held it, the first one first, and the hashes that each has told.
    pub held: Vec<(u32, Vec<Option<Check>>)>,
    /// The holder's ticket for the next one.
    pub onward: Option<Ticket>,
    /// Comes while the data goes on.
    pub proof: Option<JoinHandle<Proof>>,
}

impl Parcel {
    /// Of these parts, with no ticket yet.
    pub fn new(source: u32, parts: Vec<Piece>, id: SpoolId) -> Self {
        let (tickets, held) = (Vec::new(), Vec::new());
        Self { source, parts, tickets, id, held, onward: None, proof: None }
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(Piece::bytes).sum()
    }

    /// Who has it, if it has left its source.
    pub fn holder(&self) -> Option<u32> {
        self.held.last().map(|held| held.0)
    }
}

/// Pieces as parts that a ticket takes, and those that are too many for one parcel.
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

/// Grants for the parts, each short enough for a request.
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

/// Half of the longest: lengths below are estimates from above.
pub const REQUEST: usize = MAX_REQUEST / 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_files::inventory::FileNo;

    proptest! {
        #[test]
        fn parts_are_the_pieces_in_their_order_and_none_is_too_long(
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
    fn what_is_too_much_for_a_parcel_is_left() {
        let pieces: Vec<Piece> =
            (0..MAX_PARTS as u32 + 5).map(|n| Piece { file: FileNo(n), range: 0..1 }).collect();
        let (parts, more) = parts(pieces);
        assert_eq!((parts.len(), more.len()), (MAX_PARTS, 5));
    }
}
