//! Reads fields off the front of a slice.

use crate::signed::DecodeError;

/// What is left of the bytes; never reads past them.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// All of `bytes` is yet to be read.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] with how many are lacking; nothing is taken.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) =
            self.0.split_at_checked(n).ok_or(DecodeError::Truncated(n - self.0.len().min(n)))?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next `N` bytes, as an array.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| DecodeError::Truncated(N))
    }

    /// Requires that all has been read.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] with how many bytes are left.
    pub fn end(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::TooLong(self.0.len())) }
    }
}
