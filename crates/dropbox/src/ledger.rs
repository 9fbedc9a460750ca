//! The ledger: the destination's record of commitments as stamps, each with client, content and date. A stamp is
//! durable before it is signed and sent.

use super::{
    clock::MonotonicDates,
    files::BoxFiles,
    journal::{self, Journal},
    promises::Promises,
    strike::{self, StruckItems},
};
use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, io, path::Path, sync::Arc};
use thalweg_base::{budget::PeerKey, clock::WallClock};
use thalweg_net::PrivateKey;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signable as _, Signed, Signer as _,
    bistro::{Commitment, Intent, Refusal, Stamp, envelope_size},
    mesh::Name,
};

/// The name, deadline and limits of a box.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The name of the box.
    pub name: Name,
    pub until: WallTime,
    /// The maximum size of a submission before encryption, bytes.
    pub max_bytes: u64,
    /// The maximum size of all submissions, bytes.
    pub max_total: u64,
    /// The maximum number of submissions of one key.
    pub max_per_key: u64,
    /// The maximum size of all submissions of one key, bytes.
    pub max_bytes_per_key: u64,
    /// The maximum number of submissions.
    pub max_submissions: u64,
}

/// The commitments of one box.
///
/// The file holds stamps without their signatures. A repeated request signs the stamp again: Ed25519 gives the same
/// signature (RFC 8032 §5.1.6).
#[derive(Debug)]
pub(super) struct Ledger {
    key: Arc<PrivateKey>,
    rules: Rules,
    clock: WallClock,
    journal: Journal,
    struck: Journal,
    state: Mutex<LedgerState>,
}

#[derive(Debug, Default)]
struct LedgerState {
    last: u64,
    dates: MonotonicDates,
    stamps: BTreeMap<(NodeId, Commitment), Entry>,
    /// The keys of `stamps` by the stamps' numbers.
    numbers: BTreeMap<u64, (NodeId, Commitment)>,
    /// The count and size of each client's commitments.
    shares: BTreeMap<NodeId, Totals>,
    /// Room reserved for data that has not arrived at any node yet.
    promises: Promises,
    /// The number and total size of submissions whose data has arrived at a node.
    filled: Totals,
    struck: StruckItems,
}

/// The number and total size of some submissions.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    count: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    stamp: Stamp,
    /// Whether it is on the disk; before that it must not be sent.
    durable: bool,
    /// Whether its data has arrived at a node.
    filled: bool,
}

/// The stamps in a box's directory, in order of their numbers, without struck ones.
///
/// # Errors
/// Returns a system error, or `InvalidData` if the file holds something else.
pub(super) fn stamps(files: &BoxFiles) -> io::Result<Vec<Stamp>> {
    let found = journal::read(&files.commitments())?;
    let struck = strike::read(files)?;
    let mut stamps = decode(&found.records, &files.commitments())?;
    stamps.retain(|stamp| !struck.contains(stamp));
    // Two concurrent requests for one commitment each write a record of it.
    stamps.sort_by_key(|stamp| stamp.number);
    stamps.dedup_by_key(|stamp| stamp.number);
    Ok(stamps)
}

fn decode(records: &[Vec<u8>], file: &Path) -> io::Result<Vec<Stamp>> {
    let wrong = |e| {
        let why = format!("{}: {e}; restore it from a copy", file.display());
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    records.iter().map(|record| Stamp::decode(record).map_err(wrong)).collect()
}

impl Ledger {
    /// Opens or creates the ledger's file.
    ///
    /// # Errors
    /// Returns a system error, or `InvalidData` if the file is damaged or belongs to another key.
    pub fn open(
        files: &BoxFiles,
        key: Arc<PrivateKey>,
        rules: Rules,
        clock: WallClock,
    ) -> io::Result<Self> {
        let file = files.commitments();
        let (journal, found) = Journal::open(&file, key.id().as_bytes(), None)?;
        let (struck, known) = strike::open(files, key.id().as_bytes())?;
        let mut state = LedgerState { struck: known, ..LedgerState::default() };
        for stamp in decode(&found.records, &file)? {
            // Its number and date are used even if the submission was struck.
            state.record_date(&stamp);
            if !state.struck.contains(&stamp) {
                state.insert(stamp, true, None);
            }
        }
        Ok(Self { key, rules, clock, journal, struck, state: Mutex::new(state) })
    }

    /// Records that the data of this submission has arrived at a node, so that it no longer counts as a promise.
    pub fn record_filled(&self, number: u64) {
        self.lock().fill(number);
    }

    /// Whether the submission or its key was struck.
    pub fn is_struck(&self, stamp: &Stamp) -> bool {
        self.lock().struck.contains(stamp)
    }

    /// Strikes submissions and keys durably: removes their stamps, and refuses later submissions of the keys. Returns
    /// the stamps that were removed.
    ///
    /// # Errors
    /// If the disk fails; then nothing is struck.
    pub async fn strike(
        &self,
        numbers: &[u64],
        keys: &[NodeId],
    ) -> Result<Vec<Stamp>, Arc<io::Error>> {
        self.struck.append(strike::records(numbers, keys)).await?;
        Ok(self.lock().remove_struck(numbers, keys))
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The number of stamps in the ledger.
    pub fn count(&self) -> u64 {
        self.lock().stamps.len() as u64
    }

    /// Returns durable stamps for these commitments: for each a `Signed<Stamp>` or a refusal.
    ///
    /// The date is taken at the beginning of the call, so that waiting for the disk makes no request late. A repeated
    /// request with the same key and commitment gets the same stamp, even after the deadline.
    pub async fn commit(
        &self,
        (client, party): (NodeId, PeerKey),
        intents: Vec<Intent>,
    ) -> Vec<Result<Vec<u8>, Refusal>> {
        let now = self.clock.now();
        let wanted: Vec<_> = {
            let mut state = self.lock();
            let enter = |intent| state.find_or_create(&self.rules, (client, party), intent, now);
            intents.into_iter().map(enter).collect()
        };
        let new = wanted.iter().flatten().filter(|(_, durable)| !durable);
        let records: Vec<_> = new.map(|(stamp, _)| encoded(stamp)).collect();
        let written = match records.is_empty() {
            true => Ok(()),
            false => self.journal.append(records).await,
        };
        let answer = |entered: Result<(Stamp, bool), Refusal>| {
            let (stamp, durable) = entered?;
            match &written {
                Err(e) if !durable => {
                    self.lock().withdraw(&stamp);
                    Err(Refusal::Unable(format!("write the commitment: {e}")))
                }
                _ => {
                    self.lock().confirm(&stamp);
                    Ok(stamp)
                }
            }
        };
        let sign = |stamp: Stamp| Signed::sign(stamp, &*self.key).encode();
        wanted.into_iter().map(|entered| answer(entered).map(sign)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock()
    }
}

fn encoded(stamp: &Stamp) -> Vec<u8> {
    let mut bytes = Vec::new();
    stamp.encode(&mut bytes);
    bytes
}

impl LedgerState {
    /// Returns the earlier stamp for this commitment, or a new one, and whether it is durable.
    fn find_or_create(
        &mut self,
        rules: &Rules,
        (client, party): (NodeId, PeerKey),
        Intent { label, commitment }: Intent,
        now: WallTime,
    ) -> Result<(Stamp, bool), Refusal> {
        if self.struck.contains_key(&client) {
            return Err(Refusal::NotAdmitted);
        }
        if let Some(entry) = self.stamps.get(&(client, commitment)) {
            return Ok((entry.stamp.clone(), entry.durable));
        }
        let time = self.dates.next(now);
        self.check(rules, &client, commitment, time)?;
        self.make_room(rules, party, commitment.size, time)?;
        self.last += 1;
        let (drop_box, until) = (rules.name.clone(), rules.until);
        let stamp = Stamp { drop_box, number: self.last, client, label, commitment, time, until };
        self.insert(stamp.clone(), false, Some(party));
        Ok((stamp, false))
    }

    fn check(
        &self,
        rules: &Rules,
        client: &NodeId,
        commitment: Commitment,
        now: WallTime,
    ) -> Result<(), Refusal> {
        let own = self.shares.get(client).copied().unwrap_or_default();
        let more = own.bytes.saturating_add(commitment.size);
        match () {
            () if now >= rules.until => Err(Refusal::Late { now, until: rules.until }),
            () if commitment.size > envelope_size(rules.max_bytes) => {
                Err(Refusal::TooLarge { size: commitment.content_size(), max: rules.max_bytes })
            }
            () if own.count >= rules.max_per_key => Err(Refusal::TooMany(rules.max_per_key)),
            () if more > rules.max_bytes_per_key => Err(Refusal::TooMuch(rules.max_bytes_per_key)),
            () => Ok(()),
        }
    }

    /// Makes room for one more submission, if necessary by releasing the room of earlier promises
    /// ([`Promises::release`]).
    fn make_room(
        &mut self,
        rules: &Rules,
        party: PeerKey,
        size: u64,
        now: WallTime,
    ) -> Result<(), Refusal> {
        // Submissions whose data has arrived are not released.
        let bytes = self.filled.bytes.saturating_add(size);
        if bytes > rules.max_total || self.filled.count >= rules.max_submissions {
            return Err(Refusal::Full);
        }
        loop {
            let bytes = self.filled.bytes.saturating_add(self.promises.bytes());
            let count = self.filled.count + self.promises.count();
            if bytes.saturating_add(size) <= rules.max_total && count < rules.max_submissions {
                break;
            }
            self.promises.release(party, size, now).ok_or(Refusal::Full)?;
        }
        // Released promises stay known while there is memory for them.
        if self.stamps.len() as u64 >= 2 * rules.max_submissions {
            let number = self.promises.forget().ok_or(Refusal::Full)?;
            self.remove(number);
        }
        Ok(())
    }

    fn record_date(&mut self, stamp: &Stamp) {
        self.last = self.last.max(stamp.number);
        self.dates.record(stamp.time);
    }

    /// Marks a stamp as durable. It may have been struck since.
    fn confirm(&mut self, stamp: &Stamp) {
        if let Some(entry) = self.stamps.get_mut(&(stamp.client, stamp.commitment)) {
            entry.durable = true;
        }
    }

    /// Adds a stamp. Its promise of room counts for `party`: the member, or the address of a stranger; `None` if
    /// unknown, as after a restart.
    fn insert(&mut self, stamp: Stamp, durable: bool, party: Option<PeerKey>) {
        self.record_date(&stamp);
        let (client, size) = (stamp.client, stamp.commitment.size);
        let key = (client, stamp.commitment);
        match self.stamps.get_mut(&key) {
            Some(entry) => entry.durable |= durable,
            None => {
                self.promises.insert(stamp.number, party, size, stamp.time);
                self.numbers.insert(stamp.number, key);
                self.stamps.insert(key, Entry { stamp, durable, filled: false });
                let share = self.shares.entry(client).or_default();
                share.count += 1;
                share.bytes += size;
            }
        }
    }

    fn fill(&mut self, number: u64) {
        let entry = self.numbers.get(&number).and_then(|key| self.stamps.get_mut(key));
        if let Some(entry) = entry.filter(|entry| !entry.filled) {
            entry.filled = true;
            self.filled.count += 1;
            self.filled.bytes += entry.stamp.commitment.size;
            self.promises.remove(number);
        }
    }

    /// Removes a stamp that could not be written; its key may commit again.
    fn withdraw(&mut self, stamp: &Stamp) {
        let key = (stamp.client, stamp.commitment);
        let is_it = |e: &Entry| !e.durable && e.stamp.number == stamp.number;
        if self.stamps.get(&key).is_some_and(is_it) {
            self.remove(stamp.number);
        }
    }

    fn remove_struck(&mut self, numbers: &[u64], keys: &[NodeId]) -> Vec<Stamp> {
        self.struck.add(numbers, keys);
        let is_out = |entry: &&Entry| self.struck.contains(&entry.stamp);
        let out: Vec<u64> = match keys.is_empty() {
            true => numbers.to_vec(),
            false => self.stamps.values().filter(is_out).map(|e| e.stamp.number).collect(),
        };
        out.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    fn remove(&mut self, number: u64) -> Option<Stamp> {
        let key = self.numbers.remove(&number)?;
        self.promises.remove(number);
        let Entry { stamp, filled, .. } = self.stamps.remove(&key)?;
        let size = stamp.commitment.size;
        if filled {
            self.filled.count -= 1;
            self.filled.bytes -= size;
        }
        if let Some(share) = self.shares.get_mut(&stamp.client) {
            share.count -= 1;
            share.bytes -= size;
            if share.count == 0 {
                self.shares.remove(&stamp.client);
            }
        }
        Some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::Ipv4Addr,
        sync::atomic::{AtomicU64, Ordering},
    };
    use tempfile::TempDir;

    const NOW: u64 = 1_800_000_000_000_000_000;

    struct Scene {
        dir: TempDir,
        now: Arc<AtomicU64>,
        rules: Rules,
    }

    impl Scene {
        fn new() -> Self {
            let rules = Rules {
                name: "taxes".parse().unwrap(),
                until: WallTime::from_unix_nanos(2 * NOW),
                max_bytes: 1_000_000,
                max_total: 10_000_000,
                max_per_key: 100,
                max_bytes_per_key: 1_000_000,
                max_submissions: 1000,
            };
            let now = Arc::new(AtomicU64::new(NOW));
            Self { dir: tempfile::tempdir().unwrap(), now, rules }
        }

        fn open(&self) -> Ledger {
            let files = BoxFiles::new(self.dir.path(), &self.rules.name, None).create().unwrap();
            let now = Arc::clone(&self.now);
            let clock =
                WallClock::new(move || WallTime::from_unix_nanos(now.load(Ordering::Relaxed)));
            let key = Arc::new(PrivateKey::from_seed(&[1; 32]));
            Ledger::open(&files, key, self.rules.clone(), clock).unwrap()
        }

        fn files(&self) -> BoxFiles {
            BoxFiles::new(self.dir.path(), &self.rules.name, None)
        }
    }

    fn at(n: u8) -> PeerKey {
        PeerKey::Address(Ipv4Addr::new(10, 0, 0, n).into())
    }

    fn key(n: u8) -> NodeId {
        NodeId::from_bytes([n; 32])
    }

    async fn commit(ledger: &Ledger, n: u8, party: PeerKey, size: u64) -> Result<Stamp, Refusal> {
        let commitment = Commitment { size, hash: [n; 32] };
        let intent = Intent { label: "x".parse().unwrap(), commitment };
        let stamp = ledger.commit((key(n), party), vec![intent]).await.remove(0)?;
        Ok(Signed::<Stamp>::open(&stamp, &thalweg_net::Ed25519).unwrap().into_value())
    }

    #[tokio::test]
    async fn many_keys_of_one_address_do_not_fill_a_box() {
        let scene = Scene::new();
        let ledger = scene.open();
        for n in 0..10 {
            commit(&ledger, n, at(1), 1_000_000).await.unwrap();
        }
        assert_eq!(commit(&ledger, 10, at(1), 1).await, Err(Refusal::Full), "its own source");
        for n in 11..15 {
            commit(&ledger, n, at(2), 1_000_000).await.unwrap();
        }
        // A submission whose data has arrived keeps its room.
        let stays = commit(&ledger, 15, at(3), 1_000_000).await.unwrap();
        ledger.record_filled(stays.number);
        for n in 16..40 {
            _ = commit(&ledger, n, at(4), 1_000_000).await;
        }
        let state = ledger.lock();
        assert_eq!(state.filled.bytes, 1_000_000);
        assert!(state.filled.bytes + state.promises.bytes() <= 10_000_000);
    }

    #[tokio::test]
    async fn promises_without_data_expire_even_after_a_restart() {
        let scene = Scene::new();
        let ledger = scene.open();
        let first = commit(&ledger, 0, at(1), 1_000_000).await.unwrap();
        for n in 1..10 {
            commit(&ledger, n, at(1), 1_000_000).await.unwrap();
        }
        drop(ledger);
        scene.now.fetch_add(3_601_000_000_000, Ordering::Relaxed);
        let ledger = scene.open();
        let late = commit(&ledger, 10, at(1), 1_000_000).await.unwrap();
        assert_eq!(late.number, 11);
        // The released promise is unchanged.
        assert_eq!(commit(&ledger, 0, at(1), 1_000_000).await, Ok(first));
    }

    #[tokio::test]
    async fn struck_submissions_free_room_and_stay_struck() {
        let scene = Scene::new();
        let ledger = scene.open();
        for n in 0..10 {
            let stamp = commit(&ledger, n, at(1), 1_000_000).await.unwrap();
            ledger.record_filled(stamp.number);
        }
        assert_eq!(commit(&ledger, 10, at(2), 1).await, Err(Refusal::Full));
        let struck = ledger.strike(&[3], &[key(7)]).await.unwrap();
        let numbers: Vec<u64> = struck.iter().map(|stamp| stamp.number).collect();
        assert_eq!(numbers, [3, 8]);
        assert_eq!(commit(&ledger, 10, at(2), 1_000_000).await.unwrap().number, 11);
        assert_eq!(commit(&ledger, 7, at(1), 5).await, Err(Refusal::NotAdmitted), "its key");
        drop(ledger);
        let ledger = scene.open();
        assert_eq!(ledger.count(), 9);
        assert!(ledger.is_struck(&struck[0]) && ledger.is_struck(&struck[1]));
        assert_eq!(commit(&ledger, 7, at(1), 5).await, Err(Refusal::NotAdmitted));
        let numbers: Vec<u64> = stamps(&scene.files()).unwrap().iter().map(|s| s.number).collect();
        assert_eq!(numbers, [1, 2, 4, 5, 6, 7, 9, 10, 11]);
    }
}
