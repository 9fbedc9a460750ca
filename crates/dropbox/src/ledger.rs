//! The destination's book of commitments: who, what, when; signed, and durable before it is said.

use super::{
    clock::Dates,
    files::BoxFiles,
    journal::{self, Journal},
};
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_base::clock::WallClock;
use thalweg_net::PrivateKey;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signable as _, Signed, Signer as _,
    bistro::{Commitment, Intent, Refusal, Stamp},
    mesh::Name,
};

/// What a box allows.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The box.
    pub name: Name,
    /// The deadline.
    pub until: WallTime,
    /// Bytes of one submission.
    pub max_bytes: u64,
    /// Bytes of all.
    pub max_total: u64,
    /// Submissions of one key.
    pub max_per_key: u64,
    /// Bytes of one key.
    pub max_bytes_per_key: u64,
    /// Submissions of all.
    pub max_submissions: u64,
}

/// The commitments of one box.
///
/// In its file there are stamps without their signatures, which are made anew when they are
/// asked for again: Ed25519 gives the same (RFC 8032 §5.1.6).
#[derive(Debug)]
pub(super) struct Ledger {
    key: Arc<PrivateKey>,
    rules: Rules,
    clock: WallClock,
    journal: Journal,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    last: u64,
    dates: Dates,
    stamps: BTreeMap<(NodeId, Commitment), Entry>,
    /// Of each key.
    shares: BTreeMap<NodeId, Share>,
    bytes: u64,
}

/// What one key has committed to.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    count: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    stamp: Stamp,
    /// On the disk; before, nobody may be told of it.
    durable: bool,
}

/// The stamps in a box's directory, in the order in which they were given.
///
/// # Errors
/// The system's; `InvalidData` if the file holds something else.
pub(super) fn stamps(files: &BoxFiles) -> io::Result<Vec<Stamp>> {
    let found = journal::read(&files.commitments())?;
    decode(&found.records, &files.commitments())
}

fn decode(records: &[Vec<u8>], file: &Path) -> io::Result<Vec<Stamp>> {
    let wrong = |e| {
        let why = format!("{}: {e}; restore it from a copy", file.display());
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    records.iter().map(|record| Stamp::decode(record).map_err(wrong)).collect()
}

impl Ledger {
    /// Opens or begins the book.
    ///
    /// # Errors
    /// The system's, and `InvalidData` if it is another key's or damaged.
    pub fn open(
        files: &BoxFiles,
        key: Arc<PrivateKey>,
        rules: Rules,
        clock: WallClock,
    ) -> io::Result<Self> {
        let file = files.commitments();
        let (journal, found) = Journal::open(&file, key.id().as_bytes(), None)?;
        let mut book = Book::default();
        for stamp in decode(&found.records, &file)? {
            book.keep(stamp, true);
        }
        Ok(Self { key, rules, clock, journal, book: Mutex::new(book) })
    }

    /// The box's rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How many stamps were given.
    pub fn count(&self) -> u64 {
        self.lock().stamps.len() as u64
    }

    /// Stamps of these commitments, durable; each `Signed<Stamp>` or why not.
    ///
    /// The date is taken when this is called: who waits for the disk is not late for it. Asked for
    /// again, also after the deadline, the same key's same commitment gets the same stamp.
    pub async fn commit(
        &self,
        client: NodeId,
        intents: Vec<Intent>,
    ) -> Vec<Result<Vec<u8>, Refusal>> {
        let now = self.clock.now();
        let wanted: Vec<_> = {
            let mut book = self.lock();
            let enter = |intent| book.enter(&self.rules, client, intent, now);
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
                    self.lock().strike(&stamp);
                    Err(Refusal::Unable(format!("write the commitment: {e}")))
                }
                _ => {
                    self.lock().keep(stamp.clone(), true);
                    Ok(stamp)
                }
            }
        };
        let sign = |stamp: Stamp| Signed::sign(stamp, &*self.key).encode();
        wanted.into_iter().map(|entered| answer(entered).map(sign)).collect()
    }

    /// A panic in between leaves whole entries.
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn encoded(stamp: &Stamp) -> Vec<u8> {
    let mut bytes = Vec::new();
    stamp.encode(&mut bytes);
    bytes
}

impl Book {
    /// The stamp that was given for this before, or a new one; and whether it is durable.
    fn enter(
        &mut self,
        rules: &Rules,
        client: NodeId,
        Intent { label, commitment }: Intent,
        now: WallTime,
    ) -> Result<(Stamp, bool), Refusal> {
        if let Some(entry) = self.stamps.get(&(client, commitment)) {
            return Ok((entry.stamp.clone(), entry.durable));
        }
        let time = self.dates.next(now);
        self.check(rules, &client, commitment.size, time)?;
        self.last += 1;
        let (drop_box, until) = (rules.name.clone(), rules.until);
        let stamp = Stamp { drop_box, number: self.last, client, label, commitment, time, until };
        self.keep(stamp.clone(), false);
        Ok((stamp, false))
    }

    fn check(
        &self,
        rules: &Rules,
        client: &NodeId,
        size: u64,
        now: WallTime,
    ) -> Result<(), Refusal> {
        let own = self.shares.get(client).copied().unwrap_or_default();
        let more = own.bytes.saturating_add(size);
        match () {
            () if now >= rules.until => Err(Refusal::Late { now, until: rules.until }),
            () if size > rules.max_bytes => Err(Refusal::TooLarge { size, max: rules.max_bytes }),
            () if own.count >= rules.max_per_key => Err(Refusal::TooMany(rules.max_per_key)),
            () if more > rules.max_bytes_per_key => Err(Refusal::TooMuch(rules.max_bytes_per_key)),
            () if self.stamps.len() as u64 >= rules.max_submissions => Err(Refusal::Full),
            () if self.bytes.saturating_add(size) > rules.max_total => Err(Refusal::Full),
            () => Ok(()),
        }
    }

    fn keep(&mut self, stamp: Stamp, durable: bool) {
        self.last = self.last.max(stamp.number);
        self.dates.given(stamp.time);
        let (client, size) = (stamp.client, stamp.commitment.size);
        let key = (client, stamp.commitment);
        match self.stamps.get_mut(&key) {
            Some(entry) => entry.durable |= durable,
            None => {
                self.stamps.insert(key, Entry { stamp, durable });
                let share = self.shares.entry(client).or_default();
                share.count += 1;
                share.bytes += size;
                self.bytes += size;
            }
        }
    }

    /// Takes one back that could not be written; it is its key's as before.
    fn strike(&mut self, stamp: &Stamp) {
        let key = (stamp.client, stamp.commitment);
        let is_it = |e: &Entry| !e.durable && e.stamp.number == stamp.number;
        if !self.stamps.get(&key).is_some_and(is_it) {
            return;
        }
        self.stamps.remove(&key);
        self.bytes -= stamp.commitment.size;
        if let Some(share) = self.shares.get_mut(&stamp.client) {
            share.count -= 1;
            share.bytes -= stamp.commitment.size;
        }
    }
}
