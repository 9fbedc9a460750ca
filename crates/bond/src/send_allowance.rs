//! How many bytes of a stream may wait at the sending end, and how many more are expected.
//!
//! A slow link pays only for a stream that goes on for long enough, and only if as much may be in flight as the fast
//! links deliver meanwhile. A sender sees no more of a stream than what may wait, so it has to guess: an application
//! that was blocked is expected to write as much again as has arrived so far. So the cost of a wrong guess is
//! proportional to the stream.

/// Bytes that may wait to be sent or acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendAllowance {
    bytes: u64,
    most: u64,
    is_blocked: bool,
}

impl SendAllowance {
    /// Allows `first` bytes, and up to `most` later.
    pub fn new(first: u64, most: u64) -> Self {
        Self { bytes: first, most, is_blocked: false }
    }

    /// The number of bytes that fit in addition to `waiting`. If it is 0, the application counts as blocked from here
    /// on.
    pub fn remaining(&mut self, waiting: u64) -> u64 {
        let left = self.bytes.saturating_sub(waiting);
        self.is_blocked |= left == 0;
        left
    }

    /// The number of further bytes that are wanted: the allowance doubles, unless more than half of it still waits for
    /// a link.
    pub fn growth(&self, backlog: u64) -> u64 {
        match backlog.saturating_mul(2) > self.bytes {
            true => 0,
            false => self.bytes.min(self.most.saturating_sub(self.bytes)),
        }
    }

    /// Adds this many bytes, for which there is memory.
    pub fn grow(&mut self, more: u64) {
        self.bytes = self.bytes.saturating_add(more);
    }

    /// This many bytes still wait. If that is less than half of what may, the application has no more to write.
    pub fn record_drained(&mut self, waiting: u64) {
        self.is_blocked &= waiting.saturating_mul(2) >= self.bytes;
    }

    /// The application has written everything.
    pub fn finish(&mut self) {
        self.is_blocked = false;
    }

    /// The number of bytes still to be sent, for a stream of which `backlog` bytes wait for a link and `arrived` have
    /// arrived.
    pub fn expected_bytes(&self, backlog: u64, arrived: u64) -> u64 {
        if self.is_blocked { backlog.saturating_add(arrived) } else { backlog }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_application_is_expected_to_write_as_much_again() {
        let mut allowance = SendAllowance::new(100, 300);
        assert_eq!((allowance.remaining(60), allowance.expected_bytes(60, 1000)), (40, 60));
        assert_eq!((allowance.remaining(100), allowance.expected_bytes(100, 1000)), (0, 1100));
        allowance.record_drained(50);
        assert_eq!(allowance.expected_bytes(50, 1000), 1050);
        allowance.record_drained(49);
        assert_eq!(allowance.expected_bytes(49, 1000), 49);
        assert_eq!(allowance.remaining(100), 0);
        allowance.finish();
        assert_eq!(allowance.expected_bytes(100, 1000), 100);
    }

    #[test]
    fn the_room_grows_while_most_of_it_is_in_flight() {
        let mut allowance = SendAllowance::new(100, 300);
        assert_eq!(allowance.growth(51), 0);
        assert_eq!(allowance.growth(50), 100);
        allowance.grow(100);
        assert_eq!(allowance.growth(0), 100);
        allowance.grow(100);
        assert_eq!((allowance.growth(0), allowance.remaining(250)), (0, 50));
    }
}
