//! The destination's register of receipts: which nodes have the data of each submission.

use super::{
    files::BoxFiles,
    journal::{self, Journal},
};
use parking_lot::Mutex;
use std::{collections::BTreeSet, io, path::Path};
use thalweg_net::Ed25519;
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed,
    bistro::{Receipt, ReceiptDelivery, Refusal, Stamp, StampId},
    mesh::Name,
};

/// The receipts of one box.
#[derive(Debug)]
pub(super) struct ReceiptRegister {
    destination: NodeId,
    drop_box: Name,
    journal: Journal,
    /// The receipts known and durable, by stamp and node.
    known: Mutex<BTreeSet<(StampId, Name)>>,
}

/// A node that delivers receipts.
#[derive(Clone, Debug)]
pub struct DeliveringNode {
    /// Its name in the roster.
    pub name: Name,
    /// The key of its daemon, which it has proven.
    pub key: NodeId,
}

/// A receipt and its stamp, with valid signatures.
#[derive(Clone, Debug)]
pub struct VerifiedReceipt {
    /// The destination's stamp.
    pub stamp: Signed<Stamp>,
    /// The node's receipt.
    pub receipt: Signed<Receipt>,
    /// The nonce, and the path of the data.
    pub delivery: ReceiptDelivery,
}

impl VerifiedReceipt {
    /// Decodes a node's message, and checks both signatures: the destination's on the stamp, and the node's on the
    /// receipt.
    ///
    /// # Errors
    /// [`Refusal::Forged`].
    pub fn read(delivery: &ReceiptDelivery) -> Result<Self, Refusal> {
        let forged = |e| Refusal::Forged(format!("{e}"));
        let stamp: Signed<Stamp> = Signed::open(&delivery.stamp, &Ed25519).map_err(forged)?;
        let receipt: Signed<Receipt> = Signed::open(&delivery.receipt, &Ed25519).map_err(forged)?;
        match receipt.value().stamp == StampId::from_stamp(&stamp) {
            true => Ok(Self { stamp, receipt, delivery: delivery.clone() }),
            false => Err(Refusal::Forged("the receipt is for another stamp".into())),
        }
    }

    pub fn id(&self) -> StampId {
        self.receipt.value().stamp
    }
}

/// The receipts in a box's directory in order of arrival; a stamp may have several.
///
/// # Errors
/// Returns a system error, or `InvalidData` if the file holds something else.
pub(super) fn read_all(files: &BoxFiles) -> io::Result<Vec<VerifiedReceipt>> {
    let found = journal::read(&files.receipts())?;
    decode(&found.records, &files.receipts())
}

fn decode(records: &[Vec<u8>], file: &Path) -> io::Result<Vec<VerifiedReceipt>> {
    let wrong = |why: String| {
        let why = format!("{}: {why}; restore it from a copy", file.display());
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    let one = |record: &Vec<u8>| {
        let delivery: ReceiptDelivery =
            thalweg_wire::object::decode(record).map_err(|e| wrong(e.to_string()))?;
        VerifiedReceipt::read(&delivery).map_err(|e| wrong(e.to_string()))
    };
    records.iter().map(one).collect()
}

impl ReceiptRegister {
    /// Opens or creates the receipts file of a box at the destination, whose node has this key. Also returns the
    /// numbers of the submissions with receipts in it.
    ///
    /// # Errors
    /// Returns a system error, or `InvalidData` if the file is damaged or belongs to another key.
    pub fn open(
        files: &BoxFiles,
        destination: NodeId,
        drop_box: Name,
    ) -> io::Result<(Self, Vec<u64>)> {
        let file = files.receipts();
        let (journal, found) = Journal::open(&file, destination.as_bytes(), None)?;
        let known = decode(&found.records, &file)?;
        let numbers = known.iter().map(|a| a.stamp.value().number).collect();
        let known = known.iter().map(|a| (a.id(), a.receipt.value().node.clone())).collect();
        Ok((Self { destination, drop_box, journal, known: Mutex::new(known) }, numbers))
    }

    /// The number of submissions whose data is at a node.
    pub fn count(&self) -> u64 {
        let known = self.known.lock();
        // Entries of one stamp are adjacent, because the set is ordered.
        let mut ids: Vec<&StampId> = known.iter().map(|(id, _)| id).collect();
        ids.dedup();
        ids.len() as u64
    }

    /// Stores receipts durably. Returns a result for each; an error means that this receipt will never be accepted.
    ///
    /// # Errors
    /// Returns the disk's error; then no receipt is stored, and all may be delivered again.
    pub async fn store(
        &self,
        sender: &DeliveringNode,
        read: &[Result<VerifiedReceipt, Refusal>],
    ) -> Result<Vec<Result<(), Refusal>>, Refusal> {
        let check = |read: &Result<VerifiedReceipt, Refusal>| {
            let arrival = read.clone()?;
            self.check(sender, &arrival).map(|()| arrival)
        };
        let read: Vec<_> = read.iter().map(check).collect();
        let arrivals = read.iter().filter_map(|r| r.as_ref().ok());
        let name = |a: &VerifiedReceipt| (a.id(), a.receipt.value().node.clone());
        let new: Vec<_> = {
            let known = self.known.lock();
            arrivals.filter(|a| !known.contains(&name(a))).collect()
        };
        if !new.is_empty() {
            // `encode` adds a length, which the journal adds as well.
            let record =
                |a: &&VerifiedReceipt| thalweg_wire::object::encode(&a.delivery)[4..].to_vec();
            let written = self.journal.append(new.iter().map(record).collect()).await;
            written.map_err(|e| Refusal::Unable(format!("write the receipts: {e}")))?;
            let mut known = self.known.lock();
            known.extend(new.into_iter().map(name));
        }
        Ok(read.into_iter().map(|read| read.map(drop)).collect())
    }

    /// Checks that the stamp is this destination's and for this box, and that the receipt is signed by the node that
    /// delivers it.
    fn check(&self, sender: &DeliveringNode, arrival: &VerifiedReceipt) -> Result<(), Refusal> {
        let forged = |why: &str| Err(Refusal::Forged(why.into()));
        if arrival.stamp.signer() != self.destination {
            return forged("the stamp is from another destination");
        }
        if arrival.stamp.value().drop_box != self.drop_box {
            return forged("the stamp is for another drop box");
        }
        let receipt = &arrival.receipt;
        if receipt.signer() != sender.key || receipt.value().node != sender.name {
            return forged("the receipt is not from the node that delivers it");
        }
        Ok(())
    }
}
