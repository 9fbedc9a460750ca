//! The bytes that are sent: known at every position, so that a lost byte is detected.

use anyhow::ensure;
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The length of the period in bytes: a prime, so that a lost buffer of any usual size shifts the pattern.
const PERIOD: usize = 1_000_003;
/// The most bytes that are written or read at once.
pub const CHUNK: usize = 128 * 1024;
/// The first bytes of each connection, which are compared completely because relays switch modes there.
const WHOLE: u64 = 1 << 20;
/// The number of bytes at both ends of later reads that are compared.
const SAMPLE: usize = 32;

/// Random bytes that repeat after [`PERIOD`]; the same in every process.
pub struct Pattern(Box<[u8]>);

impl Pattern {
    /// Generates the pattern.
    pub fn new() -> Self {
        let mut bytes = vec![0; PERIOD + CHUNK];
        Xoshiro256PlusPlus::seed_from_u64(1).fill_bytes(&mut bytes[..PERIOD]);
        bytes.copy_within(..CHUNK, PERIOD);
        Self(bytes.into())
    }

    /// The [`CHUNK`] bytes from `position` of a stream.
    pub fn at(&self, position: u64) -> &[u8] {
        // Below the period, which is a `usize`.
        let start = (position % PERIOD as u64) as usize;
        &self.0[start..start + CHUNK]
    }

    /// Checks whether `bytes`, at most [`CHUNK`] of them, are those at `position`, and compares each.
    ///
    /// # Errors
    /// If they differ.
    pub fn check_whole(&self, position: u64, bytes: &[u8]) -> anyhow::Result<()> {
        ensure!(
            &self.at(position)[..bytes.len()] == bytes,
            "WRONG BYTES after {position} correct ones"
        );
        Ok(())
    }

    /// As [`Pattern::check_whole`], for rates at which comparing would be the bottleneck: compares the first MiB
    /// completely, later only both ends.
    ///
    /// # Errors
    /// If they differ.
    pub fn check(&self, position: u64, bytes: &[u8]) -> anyhow::Result<()> {
        if position < WHOLE {
            return self.check_whole(position, bytes);
        }
        let wanted = &self.at(position)[..bytes.len()];
        let (head, tail) = (bytes.len().min(SAMPLE), bytes.len().saturating_sub(SAMPLE));
        let same = wanted[..head] == bytes[..head] && wanted[tail..] == bytes[tail..];
        ensure!(same, "WRONG BYTES after {position} correct ones");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_duplicated_and_altered_bytes_are_detected() {
        let pattern = Pattern::new();
        let far = WHOLE + 12_345;
        for position in [0, 7, far] {
            let right = pattern.at(position);
            pattern.check(position, right).unwrap();
            assert!(pattern.check(position + 1, right).is_err());
            assert!(pattern.check(position + CHUNK as u64, right).is_err());
            let mut altered = right.to_vec();
            altered[CHUNK - 1] ^= 1;
            assert!(pattern.check(position, &altered).is_err());
        }
        let mut altered = pattern.at(0).to_vec();
        altered[CHUNK / 2] ^= 1;
        assert!(pattern.check(0, &altered).is_err());
        let mut altered = pattern.at(far).to_vec();
        altered[CHUNK / 2] ^= 1;
        assert!(pattern.check_whole(far, &altered).is_err());
        pattern.check(far, &[]).unwrap();
    }
}
