//! The bytes of a stream that may still have to be sent.

use std::collections::VecDeque;
use thalweg_bond::Chunk;

/// Bytes that were written, and are not acknowledged in full yet.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The offset of the first byte that is kept.
    base: u64,
    bytes: VecDeque<u8>,
}

impl Outbox {
    /// Number of bytes kept.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends bytes that were written.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Drops the bytes before this offset, which have arrived.
    pub fn forget(&mut self, arrived: u64) {
        let count = arrived.saturating_sub(self.base).min(self.bytes.len() as u64);
        self.bytes.drain(..count as usize);
        self.base += count;
    }

    /// Appends the bytes of a chunk to `to`.
    pub fn copy(&self, chunk: Chunk, to: &mut Vec<u8>) {
        let (front, back) = self.bytes.as_slices();
        let from = chunk.offset.saturating_sub(self.base) as usize;
        let until = (chunk.end().saturating_sub(self.base) as usize).min(self.bytes.len());
        let cut = front.len();
        to.extend_from_slice(&front[from.min(cut)..until.min(cut)]);
        to.extend_from_slice(&back[from.max(cut) - cut..until.max(cut) - cut]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_found_wherever_they_lie() {
        let mut outbox = Outbox::default();
        for round in 0..50u64 {
            let bytes: Vec<u8> = (round * 100..round * 100 + 100).map(|at| at as u8).collect();
            outbox.push(&bytes);
            let mut copy = Vec::new();
            let chunk = Chunk { offset: round * 100 + 30 - 30.min(round * 7), length: 50 };
            outbox.copy(chunk, &mut copy);
            let expected: Vec<u8> = (chunk.offset..chunk.end()).map(|at| at as u8).collect();
            assert_eq!(copy, expected);
            outbox.forget((round * 100).saturating_sub(50));
        }
        assert_eq!(outbox.len(), 150);
    }
}
