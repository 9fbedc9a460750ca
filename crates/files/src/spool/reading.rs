//! Sending an entry of the spool.

use super::{SpooledPart, entry::failure_of};
use crate::sender::{Buffer, DataSource, FillDeadline};
use std::{fs::File, os::unix::fs::FileExt as _};
use thalweg_wire::object::{Failure, Reply, TransferHash};

/// An entry that is being sent: its parts with their hashes, as they were received.
#[derive(Debug)]
pub struct SpoolReading {
    file: File,
    parts: Vec<SpooledPart>,
    /// The index of the current part, and the number of its bytes that were sent.
    part: usize,
    sent: u64,
    begun: bool,
    at: u64,
    broken: Option<Failure>,
    hasher: blake3::Hasher,
}

impl SpoolReading {
    pub(super) fn new(file: File, parts: Vec<SpooledPart>) -> Self {
        let (hasher, begun, broken) = (blake3::Hasher::new(), false, None);
        Self { file, parts, part: 0, sent: 0, begun, at: 0, broken, hasher }
    }

    /// The entry's parts, in order.
    pub fn parts(&self) -> &[SpooledPart] {
        &self.parts
    }

    /// Sends some bytes of a part; zeros after a read error.
    fn send(&mut self, left: u64, buffer: &mut Buffer) {
        let most = left.min(buffer.room() as u64) as usize;
        let place = buffer.reserve(most);
        let read = match self.broken {
            Some(_) => Ok(()),
            None => self.file.read_exact_at(place, self.at),
        };
        if let Err(e) = read {
            self.broken = Some(failure_of("read", &e));
        }
        if self.broken.is_some() {
            place.fill(0);
        }
        self.hasher.update(place);
        buffer.advance(most);
        self.sent += most as u64;
        self.at += most as u64;
    }

    /// The reply at a part's end. If the disk lost or changed bytes, it is a failure of this node and not a wrong hash
    /// of the source.
    fn end(&mut self) -> Reply {
        let computed = TransferHash(*self.hasher.finalize().as_bytes());
        self.hasher.reset();
        let part = &self.parts[self.part];
        (self.part, self.sent, self.begun) = (self.part + 1, 0, false);
        match (&part.check, self.broken.take()) {
            (Err(why), _) => Reply::Failed(why.clone()),
            (Ok(_), Some(why)) => Reply::Failed(why),
            (Ok(check), None) if *check == computed => Reply::Sent(computed),
            (Ok(_), None) => {
                let why = "the spool's disk returned other bytes than were written".to_owned();
                Reply::Failed(Failure::System(why))
            }
        }
    }
}

impl DataSource for SpoolReading {
    fn fill(&mut self, buffer: &mut Buffer, until: &FillDeadline) -> bool {
        while buffer.room() > 0 && !until.is_over() {
            let Some(part) = self.parts.get(self.part) else { return false };
            let left = part.bytes - self.sent;
            match (part.check.is_ok(), self.begun) {
                (true, false) => {
                    self.begun = true;
                    buffer.append_reply(&Reply::Bytes(left));
                }
                (true, true) if left > 0 => self.send(left, buffer),
                _ => {
                    let reply = self.end();
                    buffer.append_reply(&reply);
                }
            }
        }
        true
    }
}

/// The whole data of an entry, for tests.
#[cfg(test)]
pub(super) fn all(reading: &mut SpoolReading) -> Vec<u8> {
    use std::os::unix::fs::MetadataExt as _;
    let label: u64 = reading.parts.iter().map(|part| part.bytes).sum();
    assert!(reading.file.metadata().unwrap().size() > label);
    let mut bytes = vec![0; label as usize];
    reading.file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}
