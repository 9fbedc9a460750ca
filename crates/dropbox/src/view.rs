//! The operator's view of a box, read from its directory whether the daemon runs or not; and the journal of what was
//! collected.

use super::{
    files::BoxFiles,
    journal::{self, Journal},
    ledger,
    receipts::{self, VerifiedReceipt},
    spool::{self, SpoolCounts},
    strike,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};
use thalweg_units::NodeId;
use thalweg_wire::bistro::Stamp;

/// The records of a box.
#[derive(Debug)]
pub struct View {
    /// The stamps in order of their numbers, without struck ones.
    pub stamps: Vec<Stamp>,
    /// The receipts of each submission by the stamp's number, in order of arrival.
    pub arrivals: BTreeMap<u64, Vec<VerifiedReceipt>>,
    /// The numbers of the collected submissions.
    pub collected: BTreeSet<u64>,
    /// How many of the first nodes in `arrivals` have deleted their copies of each submission.
    pub cleared: BTreeMap<u64, usize>,
    /// The data that this node holds itself.
    pub here: SpoolCounts,
}

impl View {
    /// Reads the records of a box.
    ///
    /// # Errors
    /// Returns a system error, or `InvalidData` if a record is damaged.
    pub fn read(files: &BoxFiles) -> io::Result<Self> {
        let stamps = ledger::stamps(files)?;
        let mut arrivals: BTreeMap<u64, Vec<VerifiedReceipt>> = BTreeMap::new();
        let struck = strike::read(files)?;
        let wanted = |arrival: &VerifiedReceipt| !struck.contains(arrival.stamp.value());
        for arrival in receipts::read_all(files)?.into_iter().filter(wanted) {
            arrivals.entry(arrival.stamp.value().number).or_default().push(arrival);
        }
        let book = journal::read(&files.collected())?.records;
        let collected = numbers::<8>(&book).map(|(number, _)| number).collect();
        // The last record of each number applies.
        let count = |rest: &[u8]| usize::from(rest.first().copied().unwrap_or(0));
        let cleared = numbers::<9>(&book).map(|(number, rest)| (number, count(rest))).collect();
        Ok(Self { stamps, arrivals, collected, cleared, here: spool::count(files)? })
    }

    /// The commitments for which no node has delivered a receipt, so that their data is missing as far as the
    /// destination knows.
    pub fn missing(&self) -> impl Iterator<Item = &Stamp> {
        self.stamps.iter().filter(|stamp| !self.arrivals.contains_key(&stamp.number))
    }

    /// Copies of collected submissions that nodes may still have and should delete. This includes data that a client
    /// pushed to a second node, and receipts that arrived after the other nodes had deleted their copies.
    pub fn copies(&self) -> impl Iterator<Item = (u64, &VerifiedReceipt)> {
        let left = |number: &u64| {
            let all = self.arrivals.get(number).map_or(&[][..], Vec::as_slice);
            all.get(self.cleared.get(number).copied().unwrap_or(0)..).unwrap_or(&[])
        };
        self.collected.iter().flat_map(move |n| left(n).iter().map(|arrival| (*n, arrival)))
    }

    /// The receipts of submissions that are at nodes and not yet collected.
    pub fn due(&self) -> impl Iterator<Item = &[VerifiedReceipt]> {
        let due = self.arrivals.iter().filter(|(number, _)| !self.collected.contains(number));
        due.map(|(_, arrivals)| arrivals.as_slice())
    }
}

/// Parses the records that are `BYTES` long: a submission's number (8 bytes), and in records of 9 bytes how many nodes
/// have deleted the data.
fn numbers<const BYTES: usize>(records: &[Vec<u8>]) -> impl Iterator<Item = (u64, &[u8])> {
    let those = records.iter().filter(|record| record.len() == BYTES);
    those
        .filter_map(|record| record.split_first_chunk())
        .map(|(n, rest)| (u64::from_be_bytes(*n), rest))
}

/// The journal of collected submissions; used by one process at a time.
#[derive(Debug)]
pub struct Collected(Journal);

impl Collected {
    /// Opens the journal of a box at the destination, whose node has this key.
    ///
    /// # Errors
    /// Returns a system error.
    pub fn open(files: &BoxFiles, key: NodeId) -> io::Result<Self> {
        Ok(Self(Journal::open(&files.collected(), key.as_bytes(), None)?.0))
    }

    /// Records that these submissions are collected and durable under their final names. The record is durable when
    /// this returns.
    ///
    /// # Errors
    /// Returns a system error.
    pub async fn note(&self, numbers: &[u64]) -> Result<(), Arc<io::Error>> {
        self.0.append(numbers.iter().map(|n| n.to_be_bytes().to_vec()).collect()).await
    }

    /// Records how many nodes, in the order of their receipts, have deleted their copies of each submission and need
    /// not be asked again.
    ///
    /// # Errors
    /// Returns a system error.
    pub async fn cleared(&self, numbers: &BTreeMap<u64, usize>) -> Result<(), Arc<io::Error>> {
        // A box has at most 64 nodes. A count above 255, possible over a long time, only causes repeated requests.
        let count = |nodes: usize| u8::try_from(nodes).unwrap_or(u8::MAX);
        let record = |(n, nodes): (&u64, &usize)| [&n.to_be_bytes()[..], &[count(*nodes)]].concat();
        self.0.append(numbers.iter().map(record).collect()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_net::PrivateKey;
    use thalweg_units::WallTime;
    use thalweg_wire::{
        Signed, Signer as _,
        bistro::{Commitment, CommitmentHasher, Nonce, Receipt, ReceiptDelivery, StampId},
    };

    /// The receipt of node `n1`, `n2`, … for the submission with this number.
    fn arrival(number: u64, node: u8) -> VerifiedReceipt {
        let nonce = Nonce::from_bytes([0; 32]);
        let key = PrivateKey::from_seed(&[node; 32]);
        let time = WallTime::from_unix_nanos(1);
        let commitment: Commitment = CommitmentHasher::new(&nonce, &key.id()).finish();
        let stamp = Stamp {
            drop_box: "taxes".parse().unwrap(),
            number,
            client: key.id(),
            label: "a".parse().unwrap(),
            commitment,
            time,
            until: WallTime::from_unix_nanos(2),
        };
        let stamp = Signed::sign(stamp, &PrivateKey::from_seed(&[9; 32]));
        let node = format!("n{node}").parse().unwrap();
        let receipt =
            Signed::sign(Receipt { stamp: StampId::from_stamp(&stamp), node, time }, &key);
        let (stamp, receipt) = (stamp.encode(), receipt.encode());
        let path = format!("/data/{number}").into_bytes();
        VerifiedReceipt::read(&ReceiptDelivery { stamp, receipt, nonce, path }).unwrap()
    }

    fn view(arrivals: &[(u64, &[u8])]) -> View {
        let all = |(number, nodes): &(u64, &[u8])| {
            (*number, nodes.iter().map(|node| arrival(*number, *node)).collect())
        };
        View {
            stamps: Vec::new(),
            arrivals: arrivals.iter().map(all).collect(),
            collected: BTreeSet::new(),
            cleared: BTreeMap::new(),
            here: SpoolCounts::default(),
        }
    }

    #[test]
    fn each_copy_is_listed_until_its_node_has_deleted_it() {
        let mut view = view(&[(1, &[1, 2]), (2, &[2]), (3, &[1])]);
        view.collected = [1, 2].into();
        let copies = |view: &View| {
            let node = |a: &VerifiedReceipt| a.receipt.value().node.to_string();
            view.copies().map(|(number, a)| format!("{number} {}", node(a))).collect::<Vec<_>>()
        };
        assert_eq!(copies(&view), ["1 n1", "1 n2", "2 n2"]);
        view.cleared = [(1, 2)].into();
        assert_eq!(copies(&view), ["2 n2"]);
        // A receipt that arrived after the others were deleted.
        view.arrivals.get_mut(&1).unwrap().push(arrival(1, 3));
        assert_eq!(copies(&view), ["1 n3", "2 n2"]);
    }

    #[tokio::test]
    async fn collected_and_cleared_submissions_are_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let files = BoxFiles::new(dir.path(), &"taxes".parse().unwrap(), None).create().unwrap();
        let book = Collected::open(&files, PrivateKey::from_seed(&[1; 32]).id()).unwrap();
        book.note(&[1, 2, 3]).await.unwrap();
        book.cleared(&[(1, 1), (2, 1)].into()).await.unwrap();
        book.cleared(&[(1, 3)].into()).await.unwrap();
        let view = View::read(&files).unwrap();
        assert_eq!(view.collected, [1, 2, 3].into());
        assert_eq!(view.cleared, [(1, 3), (2, 1)].into());
    }

    #[test]
    fn missing_data_is_requested_from_the_next_node() {
        use crate::collect::{SubmissionResult, next_sources, replace_results, sources};
        let view = view(&[(1, &[1, 2, 3]), (2, &[1]), (3, &[2, 1])]);
        let asked = |sources: Vec<crate::collect::Source>| {
            let numbers = |s: &crate::collect::Source| {
                s.arrivals.iter().map(|a| a.stamp.value().number).collect::<Vec<_>>()
            };
            sources.iter().map(|s| (s.node.to_string(), numbers(s))).collect::<Vec<_>>()
        };
        assert_eq!(asked(sources(&view)), [("n1".into(), vec![1, 2]), ("n2".into(), vec![3])]);
        let failed = |number, why: &str| SubmissionResult { number, outcome: Err(why.into()) };
        let mut settled = vec![
            failed(1, "away"),
            failed(2, "away"),
            SubmissionResult { number: 3, outcome: Ok("c".into()) },
        ];
        assert_eq!(asked(next_sources(&view, &settled, 1)), [("n2".into(), vec![1])]);
        replace_results(&mut settled, vec![failed(1, "damaged")]);
        assert_eq!(settled[0].outcome.as_ref().unwrap_err(), "away; damaged");
        assert_eq!(asked(next_sources(&view, &settled, 2)), [("n3".into(), vec![1])]);
        replace_results(
            &mut settled,
            vec![SubmissionResult { number: 1, outcome: Ok("a".into()) }],
        );
        assert!(settled[0].outcome.is_ok() && next_sources(&view, &settled, 3).is_empty());
        assert_eq!(settled[1].outcome.as_ref().unwrap_err(), "away", "nobody else has it");
    }
}
