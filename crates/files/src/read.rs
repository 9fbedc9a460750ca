//! Bytes of files, and proofs that they are those that were listed.

use super::{
    Reader,
    beneath::{Root, failure, snapshot},
    hashes::{Asked, Claim, Part},
    pour::{Buffer, CHUNK, Source, Until},
    session::who,
};
use rustix::{fs::fstat, io::pread};
use std::{
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant, SystemTime},
};
use thalweg_base::budget::PeerKey;
use thalweg_wire::object::{self, Check, Failure, FileRef, ReadRequest, Reply, Snapshot};

/// A hash that takes longer says that it is at it.
const SILENT: Duration = Duration::from_secs(10);

/// How often a request checks for a hash that another request computes. It holds its turn meanwhile.
const AGAIN: Duration = Duration::from_millis(5);

/// Parts of files, one behind the other: their bytes, or only their hashes.
#[derive(Debug)]
pub(super) struct Reading {
    reader: Reader,
    parts: std::vec::IntoIter<ReadRequest>,
    open: Option<Open>,
    /// The last offered directory that was read from.
    root: Option<(Vec<u8>, Root)>,
    hashes_only: bool,
    /// When the last bytes were sent.
    sent: Instant,
    /// What was said at each part's end.
    pub said: Vec<Result<Check, Failure>>,
}

/// A part that is being read.
#[derive(Debug)]
struct Open {
    file: OwnedFd,
    path: Vec<u8>,
    meant: Snapshot,
    at: u64,
    left: u64,
    hasher: blake3::Hasher,
    broken: Option<Failure>,
    /// Set while only its hash is computed.
    claim: Option<Claim>,
}

impl Reading {
    /// These parts, as far as `reader` may read them.
    pub fn new(reader: Reader, parts: Vec<ReadRequest>) -> Self {
        let said = Vec::with_capacity(parts.len());
        let parts = parts.into_iter();
        let sent = Instant::now();
        Self { reader, parts, open: None, root: None, hashes_only: false, sent, said }
    }

    /// These whole files.
    pub fn whole(reader: Reader, files: Vec<FileRef>) -> Self {
        let whole = |file: FileRef| ReadRequest { from: 0, bytes: file.snapshot.size, file };
        Self::new(reader, files.into_iter().map(whole).collect())
    }

    /// The hashes of these whole files.
    pub fn hashes(reader: Reader, files: Vec<FileRef>) -> Self {
        Self { hashes_only: true, ..Self::whole(reader, files) }
    }

    /// The hashes of these parts.
    pub fn hashes_of(reader: Reader, parts: Vec<ReadRequest>) -> Self {
        Self { hashes_only: true, ..Self::new(reader, parts) }
    }

    fn begin(&mut self, part: ReadRequest) -> Result<Open, Failure> {
        let path = full_path(&part.file);
        let (place, below) = self.reader.offers().readable(&self.reader.member, &path)?;
        if self.root.as_ref().is_none_or(|(at, _)| *at != place.path) {
            self.root = Some((place.path.clone(), Root::open(&place.path)?));
        }
        let Some((_, root)) = &self.root else { return Err(Failure::Changed) };
        let (file, found) = root.file(below).map_err(|e| failure(&path, e))?;
        let meant = part.file.snapshot;
        let end = part.from.checked_add(part.bytes);
        if snapshot(&found) != meant || end.is_none_or(|end| end > meant.size) {
            return Err(Failure::Changed);
        }
        let (at, left, hasher) = (part.from, part.bytes, blake3::Hasher::new());
        Ok(Open { file, path, meant, at, left, hasher, broken: None, claim: None })
    }

    fn end(&mut self, said: Result<Check, Failure>, buffer: &mut Buffer) {
        buffer.reply(&match &said {
            Ok(check) => Reply::Sent(*check),
            Err(why) => Reply::Failed(why.clone()),
        });
        self.said.push(said);
    }

    /// Hashes part of the open file; `None` if there is more to hash, or another request computes the hash.
    fn hash(&self, open: &mut Open, until: &Until) -> Option<Result<Check, Failure>> {
        if open.claim.is_none() {
            let part = Part { snapshot: open.meant, from: open.at, bytes: open.left };
            match self.reader.shared.hashes.ask(part, who(&self.reader.member), SystemTime::now()) {
                Asked::Known(check) => return Some(Ok(check)),
                Asked::Own(claim) => open.claim = Some(claim),
                Asked::Running => {
                    #[expect(clippy::disallowed_methods, reason = "a thread of the blocking pool")]
                    thread::sleep(AGAIN);
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
    fn fill_hashes(&mut self, buffer: &mut Buffer, until: &Until) -> bool {
        while buffer.room() > 0 && !until.is_over() {
            let opened = match self.open.take() {
                Some(open) => Ok(open),
                None => match self.parts.next() {
                    Some(part) => self.begin(part),
                    None => return false,
                },
            };
            let said = opened.map(|mut open| {
                let said = self.hash(&mut open, until);
                self.open = said.is_none().then_some(open);
                said
            });
            match said {
                Ok(None) => break,
                Ok(Some(said)) => self.end(said, buffer),
                Err(why) => self.end(Err(why), buffer),
            }
        }
        if buffer.is_empty() && self.sent.elapsed() > SILENT {
            buffer.reply(&Reply::Wait);
        }
        if !buffer.is_empty() {
            self.sent = Instant::now();
        }
        true
    }
}

impl Source for Reading {
    /// Hashing costs more than reading, and because its answer is short, the network does not slow it down.
    fn costs(&self) -> Option<PeerKey> {
        self.hashes_only.then(|| who(&self.reader.member))
    }

    fn fill(&mut self, buffer: &mut Buffer, until: &Until) -> bool {
        if self.hashes_only {
            return self.fill_hashes(buffer, until);
        }
        while buffer.room() > 0 && !until.is_over() {
            let Some(mut open) = self.open.take() else {
                let Some(part) = self.parts.next() else { return false };
                match self.begin(part) {
                    Err(why) => self.end(Err(why), buffer),
                    Ok(open) => {
                        buffer.reply(&Reply::Bytes(open.left));
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
    /// Reads on into the buffer; once the file gives no more, zeros.
    fn send(&mut self, buffer: &mut Buffer) {
        let most = self.left.min(buffer.room() as u64) as usize;
        if self.broken.is_some() {
            buffer.zeros(most);
            self.left -= most as u64;
            return;
        }
        let read = self.read(buffer.place(most));
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

    /// That the file is the same as before the first byte.
    fn end(&mut self) -> Result<Check, Failure> {
        if let Some(why) = self.broken.take() {
            return Err(why);
        }
        let found = fstat(&self.file).map_err(|e| failure(&self.path, e))?;
        if snapshot(&found) != self.meant {
            return Err(Failure::Changed);
        }
        let check = Check(*self.hasher.finalize().as_bytes());
        if let Some(claim) = self.claim.take() {
            claim.computed(check);
        }
        Ok(check)
    }
}

/// Where it is on this host.
pub(super) fn full_path(file: &FileRef) -> Vec<u8> {
    let mut path = object::base(&file.root).to_vec();
    if !file.path.as_bytes().is_empty() {
        path.push(b'/');
        path.extend(file.path.as_bytes());
    }
    path
}
