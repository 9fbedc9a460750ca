//! Reading offered files: their bytes and hashes, with the proof that a file is still the listed one.

use super::{
    Requester,
    hashes::{FilePart, HashClaim, Lookup},
    root::{Root, failure, snapshot},
    sender::{Buffer, CHUNK, DataSource, FillDeadline},
    session::peer_key,
};
use rustix::{fs::fstat, io::pread};
use std::{
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant, SystemTime},
};
use thalweg_base::budget::PeerKey;
use thalweg_wire::object::{self, Failure, FileRef, ReadRequest, Reply, Snapshot, TransferHash};

/// The longest time without a message to the peer while a hash is computed.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// How often a request checks for a hash that another request computes. It holds its turn meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The answer to a read request: parts of files in order, with their bytes or only their hashes.
#[derive(Debug)]
pub(super) struct FileReading {
    requester: Requester,
    parts: std::vec::IntoIter<ReadRequest>,
    open: Option<Open>,
    /// The last offered directory that was read from.
    root: Option<(Vec<u8>, Root)>,
    hashes_only: bool,
    /// When the last bytes were sent.
    sent: Instant,
    /// The result of each part that has ended.
    pub results: Vec<Result<TransferHash, Failure>>,
}

/// A part that is being read.
#[derive(Debug)]
struct Open {
    file: OwnedFd,
    path: Vec<u8>,
    listed: Snapshot,
    at: u64,
    left: u64,
    hasher: blake3::Hasher,
    broken: Option<Failure>,
    /// Set while only its hash is computed.
    claim: Option<HashClaim>,
}

impl FileReading {
    /// Reads these parts. A part that `requester` may not read is answered with a failure.
    pub fn new(requester: Requester, parts: Vec<ReadRequest>) -> Self {
        let results = Vec::with_capacity(parts.len());
        let parts = parts.into_iter();
        let sent = Instant::now();
        Self { requester, parts, open: None, root: None, hashes_only: false, sent, results }
    }

    /// Reads these whole files.
    pub fn whole(requester: Requester, files: Vec<FileRef>) -> Self {
        let whole = |file: FileRef| ReadRequest { from: 0, bytes: file.snapshot.size, file };
        Self::new(requester, files.into_iter().map(whole).collect())
    }

    /// Hashes these whole files without sending their bytes.
    pub fn hashes(requester: Requester, files: Vec<FileRef>) -> Self {
        Self { hashes_only: true, ..Self::whole(requester, files) }
    }

    /// Hashes these parts without sending their bytes.
    pub fn hashes_of(requester: Requester, parts: Vec<ReadRequest>) -> Self {
        Self { hashes_only: true, ..Self::new(requester, parts) }
    }

    fn begin(&mut self, part: ReadRequest) -> Result<Open, Failure> {
        let path = full_path(&part.file);
        let (place, below) = self.requester.offers().readable(&self.requester.member, &path)?;
        if self.root.as_ref().is_none_or(|(at, _)| *at != place.path) {
            self.root = Some((place.path.clone(), Root::open(&place.path)?));
        }
        let Some((_, root)) = &self.root else { return Err(Failure::Changed) };
        let (file, found) = root.file(below).map_err(|e| failure(&path, e))?;
        let listed = part.file.snapshot;
        let end = part.from.checked_add(part.bytes);
        if snapshot(&found) != listed || end.is_none_or(|end| end > listed.size) {
            return Err(Failure::Changed);
        }
        let (at, left, hasher) = (part.from, part.bytes, blake3::Hasher::new());
        Ok(Open { file, path, listed, at, left, hasher, broken: None, claim: None })
    }

    fn end(&mut self, result: Result<TransferHash, Failure>, buffer: &mut Buffer) {
        buffer.append_reply(&match &result {
            Ok(check) => Reply::Sent(*check),
            Err(why) => Reply::Failed(why.clone()),
        });
        self.results.push(result);
    }

    /// Continues to hash the open part. `None` if there is more to hash, or if another request computes the hash.
    fn hash(&self, open: &mut Open, until: &FillDeadline) -> Option<Result<TransferHash, Failure>> {
        if open.claim.is_none() {
            let part = FilePart { snapshot: open.listed, from: open.at, bytes: open.left };
            match self.requester.shared.hashes.ask(
                part,
                peer_key(&self.requester.member),
                SystemTime::now(),
            ) {
                Lookup::Known(check) => return Some(Ok(check)),
                Lookup::Own(claim) => open.claim = Some(claim),
                Lookup::Running => {
                    #[expect(clippy::disallowed_methods, reason = "a thread of the blocking pool")]
                    thread::sleep(POLL_INTERVAL);
                    return None;
                }
            }
        }
        let mut scratch = vec![0; open.left.min(CHUNK as u64) as usize];
        while open.left > 0 && open.broken.is_none() {
            if until.is_over() {
                return None;
            }
            let most = open.left.min(scratch.len() as u64) as usize;
            open.read(&mut scratch[..most]);
        }
        Some(open.end())
    }

    /// Puts hashes into the buffer until it is full or the turn ends. Returns whether there is more to send.
    fn fill_hashes(&mut self, buffer: &mut Buffer, until: &FillDeadline) -> bool {
        while buffer.room() > 0 && !until.is_over() {
            let opened = match self.open.take() {
                Some(open) => Ok(open),
                None => match self.parts.next() {
                    Some(part) => self.begin(part),
                    None => return false,
                },
            };
            let result = opened.map(|mut open| {
                let result = self.hash(&mut open, until);
                self.open = result.is_none().then_some(open);
                result
            });
            match result {
                Ok(None) => break,
                Ok(Some(result)) => self.end(result, buffer),
                Err(why) => self.end(Err(why), buffer),
            }
        }
        if buffer.is_empty() && self.sent.elapsed() > MAX_SILENCE {
            buffer.append_reply(&Reply::Wait);
        }
        if !buffer.is_empty() {
            self.sent = Instant::now();
        }
        true
    }
}

impl DataSource for FileReading {
    /// Hashing costs more than reading, and because its answer is short, the network does not slow it down.
    fn charged_peer(&self) -> Option<PeerKey> {
        self.hashes_only.then(|| peer_key(&self.requester.member))
    }

    fn fill(&mut self, buffer: &mut Buffer, until: &FillDeadline) -> bool {
        if self.hashes_only {
            return self.fill_hashes(buffer, until);
        }
        while buffer.room() > 0 && !until.is_over() {
            let Some(mut open) = self.open.take() else {
                let Some(part) = self.parts.next() else { return false };
                match self.begin(part) {
                    Err(why) => self.end(Err(why), buffer),
                    Ok(open) => {
                        buffer.append_reply(&Reply::Bytes(open.left));
                        self.open = Some(open);
                    }
                }
                continue;
            };
            if open.left > 0 {
                open.send(buffer);
                self.open = Some(open);
                continue;
            }
            self.end(open.end(), buffer);
        }
        true
    }
}

impl Open {
    /// Reads the next bytes into the buffer. After an error or the end of the file it fills the announced length with
    /// zeros.
    fn send(&mut self, buffer: &mut Buffer) {
        let most = self.left.min(buffer.room() as u64) as usize;
        if self.broken.is_some() {
            buffer.append_zeros(most);
            self.left -= most as u64;
            return;
        }
        let read = self.read(buffer.reserve(most));
        buffer.advance(read);
    }

    fn read(&mut self, place: &mut [u8]) -> usize {
        match pread(&self.file, &mut *place, self.at) {
            Ok(0) => {
                self.broken = Some(Failure::Changed);
                0
            }
            Ok(count) => {
                self.hasher.update(&place[..count]);
                self.at += count as u64;
                self.left -= count as u64;
                count
            }
            Err(rustix::io::Errno::INTR) => 0,
            Err(e) => {
                self.broken = Some(failure(&self.path, e));
                0
            }
        }
    }

    /// Returns the hash if the file is still the one that was listed.
    fn end(&mut self) -> Result<TransferHash, Failure> {
        if let Some(why) = self.broken.take() {
            return Err(why);
        }
        let found = fstat(&self.file).map_err(|e| failure(&self.path, e))?;
        if snapshot(&found) != self.listed {
            return Err(Failure::Changed);
        }
        let check = TransferHash(*self.hasher.finalize().as_bytes());
        if let Some(claim) = self.claim.take() {
            claim.finish(check);
        }
        Ok(check)
    }
}

/// The file's absolute path on this host.
pub(super) fn full_path(file: &FileRef) -> Vec<u8> {
    let mut path = object::base(&file.root).to_vec();
    if !file.path.as_bytes().is_empty() {
        path.push(b'/');
        path.extend(file.path.as_bytes());
    }
    path
}
